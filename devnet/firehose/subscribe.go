package firehose

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/api/atproto"
	"github.com/gorilla/websocket"
)

// Path is where the stream is served.
const Path = "/xrpc/com.atproto.sync.subscribeRepos"

const writeTimeout = 5 * time.Second

// ServeHTTP answers a subscription.
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cursor := int64(-1)
	if text := r.URL.Query().Get("cursor"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			http.Error(w, `{"error":"InvalidRequest","message":"invalid cursor"}`, http.StatusBadRequest)
			return
		}
		cursor = n
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	s.conns[conn] = struct{}{}
	s.connects = append(s.connects, r.URL.RawQuery)
	after, note := s.begin(cursor)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	if note != nil && send(conn, note) != nil || after < 0 {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		s.read(conn)
	})
	s.write(ctx, conn, after)
	cancel()
	_ = conn.NetConn().Close()
	reading.Wait()
}

// begin gives the number after which a reader with cursor begins, and what it is told first. Below 0 it gets no more.
// The caller holds the lock.
func (s *Stream) begin(cursor int64) (after int64, note []byte) {
	switch {
	case cursor < 0:
		return s.seq, nil
	case cursor > s.seq:
		return -1, refusal("FutureCursor")
	case len(s.log) > 0 && cursor < s.log[0].seq-1:
		b, err := encode("#info", &atproto.SyncSubscribeRepos_Info{Name: "OutdatedCursor"})
		if err != nil {
			return -1, nil
		}
		return cursor, b
	}
	return cursor, nil
}

// refusal is an error message.
func refusal(name string) []byte {
	return fmt.Appendf(nil, "\xa1bop \xa2eerror%c%sgmessagebno", 0x60+len(name), name)
}

// read takes what the other side says, which is nothing but control messages, until the connection ends.
func (s *Stream) read(conn *websocket.Conn) {
	answer := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		s.mu.Lock()
		dead := s.faults.Dead
		s.mu.Unlock()
		if dead {
			return nil
		}
		return answer(data)
	})
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			return
		}
	}
}

// next gives the messages after the number, or the channel to wait on.
func (s *Stream) next(after int64) ([]message, Faults, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Silence || s.faults.Dead {
		return nil, s.faults, s.more
	}
	i := sort.Search(len(s.log), func(i int) bool { return s.log[i].seq > after })
	return s.log[i:], s.faults, s.more
}

func (s *Stream) write(ctx context.Context, conn *websocket.Conn, after int64) {
	ping := time.NewTicker(s.ping)
	defer ping.Stop()
	sent := 0
	for {
		ms, f, more := s.next(after)
		for _, m := range ms {
			if send(conn, m.body) != nil {
				return
			}
			after = max(after, m.seq)
			if sent++; f.CutAfter > 0 && sent >= f.CutAfter {
				return
			}
		}
		if len(ms) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-ping.C:
			if !f.Dead && conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		}
	}
}

func send(conn *websocket.Conn, b []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return conn.WriteMessage(websocket.BinaryMessage, b)
}
