package knot

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/gorilla/websocket"

	"spindle/internal/clock"
)

func newEvents(c clock.Clock, newer bool, faults func() StreamFaults) *events {
	return &events{clock: c, newer: newer, faults: faults, more: make(chan struct{})}
}

// start is the index to begin at; false: the cursor is ahead of everything.
func (e *events) start(cursor string) (int, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.connects = append(e.connects, cursor)
	if cursor == "" {
		return len(e.log), true
	}
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return 0, false
	}
	last := int64(0)
	for i, m := range e.log {
		if m.place > at {
			return i, true
		}
		last = m.place
	}
	return len(e.log), !e.newer || at <= last
}

// next gives what is there from place on, at most block messages, or a channel that closes when more is.
func (e *events) next(place, block int) ([]message, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if place > len(e.log) {
		place = 0 // numbered anew
	}
	if place == len(e.log) {
		return nil, e.more
	}
	return slices.Clone(e.log[place:min(place+max(block, 1), len(e.log))]), nil
}

func (e *events) count(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open += n
}

// ServeHTTP answers the websocket.
func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := e.faults()
	if e.newer && f.NoNewer || !e.newer && f.NoOlder {
		http.NotFound(w, r)
		return
	}
	place, ok := e.start(r.URL.Query().Get("cursor"))
	if !ok && !f.Frame {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"FutureCursor","message":"cursor is ahead of the stream"}`))
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	e.count(1)
	defer e.count(-1)
	s := &sender{events: e, conn: conn, faults: f, gone: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(s.read)
	defer reading.Wait()
	defer func() { _ = conn.Close() }()
	if !ok {
		head, _ := atdata.MarshalCBOR(map[string]any{"op": int64(-1)})
		body, _ := atdata.MarshalCBOR(map[string]any{"error": "FutureCursor", "message": "cursor is ahead of the stream"})
		_ = s.write(slices.Concat(head, body))
		return
	}
	s.send(r, place)
}

// sender is one connection.
type sender struct {
	*events
	conn   *websocket.Conn
	faults StreamFaults
	gone   chan struct{}
	sent   int
}

func (s *sender) read() {
	defer close(s.gone)
	s.conn.SetReadLimit(4096)
	for {
		if _, _, err := s.conn.NextReader(); err != nil {
			return
		}
	}
}

func (s *sender) write(b []byte) error {
	kind := websocket.TextMessage
	if s.newer {
		kind = websocket.BinaryMessage
	}
	// Socket deadlines are the machine's time, whatever clock the events have.
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return s.conn.WriteMessage(kind, b)
}

func (s *sender) send(r *http.Request, place int) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		block, more := s.next(place, s.faults.Reorder)
		place += len(block)
		if s.faults.Reorder > 1 {
			slices.Reverse(block)
		}
		for _, m := range block {
			if !s.one(m.body) {
				return
			}
		}
		if more == nil {
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.gone:
			return
		case <-more:
		case <-ping.C:
			if s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		}
	}
}

// one sends a message as the faults want; false: the connection is over.
func (s *sender) one(b []byte) bool {
	times := 1
	if s.faults.Duplicate {
		times = 2
	}
	for range times {
		if s.write(b) != nil {
			return false
		}
	}
	s.sent++
	return s.faults.CutAfter == 0 || s.sent < s.faults.CutAfter
}
