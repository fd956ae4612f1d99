package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"
)

const (
	writeTimeout = 5 * time.Second
	maxUpdate    = 10_000_000 // bytes of a message from a subscriber
)

// errCut ends a subscription that CutAfter wants ended.
var errCut = errors.New("jetstream: cut on request")

// wire is the writing half of one connection; control frames and events share it.
type wire struct {
	conn *websocket.Conn
	zip  *zstd.Encoder // nil: plain JSON

	mu sync.Mutex
}

func (w *wire) text(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if w.zip != nil {
		return w.conn.WriteMessage(websocket.BinaryMessage, w.zip.EncodeAll(b, nil))
	}
	return w.conn.WriteMessage(websocket.TextMessage, b)
}

// cut ends the connection without a close frame.
func (w *wire) cut() { _ = w.conn.NetConn().Close() }

// subscriber is one connection and what it wants.
type subscriber struct {
	stream *Stream
	wire   *wire
	v2     bool

	mu     sync.Mutex
	filter filter
	hello  chan struct{} // closed by the first options_update, or from the start
}

// ServeHTTP answers GET /subscribe, and version 2 at PathV2.
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/subscribe":
	case PathV2:
		s.serveV2(w, r)
		return
	default:
		http.NotFound(w, r)
		return
	}
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("maxMessageSizeBytes")) // malformed means none, as on the public servers
	f, err := newFilter(options{q["wantedCollections"], q["wantedDids"], size})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var cursor int64
	if text := q.Get("cursor"); text != "" {
		if cursor, err = strconv.ParseInt(text, 10, 64); err != nil {
			http.Error(w, "invalid cursor", http.StatusBadRequest)
			return
		}
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = conn.Close() }()
	wr := &wire{conn: conn}
	if q.Get("compress") == "true" || strings.Contains(r.Header.Get("Socket-Encoding"), "zstd") {
		// One goroutine is enough: EncodeAll is used only.
		if wr.zip, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
			return
		}
		defer func() { _ = wr.zip.Close() }()
	}
	sub := &subscriber{stream: s, wire: wr, filter: f, hello: make(chan struct{})}
	if q.Get("requireHello") != "true" {
		close(sub.hello)
	}
	place := s.place(cursor)
	s.join(wr, r.URL.RawQuery)
	defer s.leave(wr)
	sub.run(r.Context(), place)
}

func (s *Stream) join(w *wire, query string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wires[w] = struct{}{}
	s.connects = append(s.connects, Connect{Time: s.clock.Now(), Query: query})
}

func (s *Stream) leave(w *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wires, w)
}

// run reads in one goroutine and writes in this one, and waits for both to end.
func (c *subscriber) run(ctx context.Context, place int) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		c.read()
	})
	// A reader and a writer that are blocked on the socket end when it is closed.
	stop := context.AfterFunc(ctx, c.wire.cut)
	c.write(ctx, place)
	cancel()
	stop()
	c.wire.cut()
	reading.Wait()
}

// read handles options_update until the connection ends; an invalid one ends it.
func (c *subscriber) read() {
	c.wire.conn.SetReadLimit(maxUpdate)
	answer := c.wire.conn.PingHandler()
	c.wire.conn.SetPingHandler(func(data string) error {
		if c.stream.current().Dead {
			return nil
		}
		return answer(data)
	})
	for {
		_, b, err := c.wire.conn.ReadMessage()
		if err != nil || c.v2 { // in version 2 a subscriber has nothing to say
			return
		}
		var msg struct {
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload"`
		}
		if json.Unmarshal(b, &msg) != nil || msg.Type != "options_update" {
			continue // the public servers ignore it
		}
		var o options
		if json.Unmarshal(msg.Payload, &o) != nil {
			return
		}
		f, err := newFilter(o)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.filter = f
		select {
		case <-c.hello:
		default:
			close(c.hello)
		}
		c.mu.Unlock()
	}
}

func (c *subscriber) wants(e entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter.wants(e) && (c.v2 || e.Kind != "sync")
}

// write sends the log from place on until the connection or ctx ends.
func (c *subscriber) write(ctx context.Context, place int) {
	select {
	case <-ctx.Done():
		return
	case <-c.hello:
	}
	ping := time.NewTicker(c.stream.ping)
	defer ping.Stop()
	out := sender{sub: c}
	for {
		e, f, ok, more := c.stream.next(&place)
		if ok && !f.Dead {
			if !c.wants(e) {
				continue
			}
			if out.add(ctx, e, f) != nil {
				return
			}
			continue
		}
		if !f.Silence && !f.Dead && out.flush(ctx, f) != nil {
			return
		}
		if ok { // a dead stream loses what it reads, as a stuck socket does
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-ping.C:
			if f.Dead {
				continue
			}
			deadline := time.Now().Add(writeTimeout)
			if c.wire.conn.WriteControl(websocket.PingMessage, nil, deadline) != nil {
				return
			}
		}
	}
}

// sender applies the faults that concern single events.
type sender struct {
	sub  *subscriber
	held []entry // the group that Reorder gathers
	sent int
}

func (o *sender) add(ctx context.Context, e entry, f Faults) error {
	if f.Drop != nil && f.Drop(e.Event) {
		return nil
	}
	o.held = append(o.held, e)
	if f.Duplicate != nil && f.Duplicate(e.Event) {
		o.held = append(o.held, e)
	}
	if len(o.held) < f.Reorder {
		return nil
	}
	return o.flush(ctx, f)
}

// flush sends what is held.
func (o *sender) flush(ctx context.Context, f Faults) error {
	group := o.held
	o.held = nil
	for i := range group {
		e := group[i]
		if f.Reorder > 1 {
			e = group[len(group)-1-i]
		}
		if err := o.sub.stream.clock.Sleep(ctx, f.Delay); err != nil {
			return err
		}
		if err := o.sub.tell(e); err != nil {
			return err
		}
		if o.sent++; f.CutAfter > 0 && o.sent >= f.CutAfter {
			o.sub.wire.cut()
			return errCut
		}
	}
	return nil
}
