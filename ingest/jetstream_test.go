package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"spindle/devnet/jetstream"
	"spindle/internal/clock"
)

// reading is a Stream under test and what it told.
type reading struct {
	frames chan Frame
	bad    atomic.Int64
	mu     sync.Mutex
	states []bool
	gaps   []Missed
	ended  chan struct{}
	cancel context.CancelFunc
}

func (r *reading) last() (up bool, changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.states) > 0 && r.states[len(r.states)-1], len(r.states)
}

// position is a cursor that at tells; 0 is none.
func position(at func() int64) func(context.Context, Endpoint) (Position, error) {
	return func(context.Context, Endpoint) (Position, error) {
		v := at()
		return Position{Value: v, Known: v > 0, At: time.Now()}, nil
	}
}

// end cancels the stream and waits for its end.
func (r *reading) end(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the stream does not end with its context")
	}
}

// read runs a stream on the server at base until the test ends.
func read(t *testing.T, base string, change ...func(*SourceConfig)) *reading {
	t.Helper()
	return readAt(t, "ws"+strings.TrimPrefix(base, "http")+"/subscribe", change...)
}

// readAt is read of the stream at an address.
func readAt(t *testing.T, address string, change ...func(*SourceConfig)) *reading {
	t.Helper()
	r := &reading{frames: make(chan Frame, 1000), ended: make(chan struct{})}
	es, err := ParseEndpoints(address)
	require.NoError(t, err)
	c := SourceConfig{
		Endpoints: es, Collections: Collections(), Dial: plainDial,
		Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler), Ping: time.Hour, Bad: func() { r.bad.Add(1) },
		Cursor: position(func() int64 { return 0 }),
		Sink:   func(_ context.Context, _ Endpoint, f Frame) error { r.frames <- f; return nil },
		Missed: func(_ context.Context, _ Endpoint, m Missed) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gaps = append(r.gaps, m)
			return nil
		},
		State: func(_ Endpoint, up bool, _ string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.states = append(r.states, up)
		},
	}
	for _, f := range change {
		f(&c)
	}
	s := NewSource(c)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		_ = s.Run(ctx)
	}()
	t.Cleanup(func() { r.end(t) })
	return r
}

// host is a Jetstream of the development network.
func host(t *testing.T) (*jetstream.Stream, string) {
	t.Helper()
	js := jetstream.New(jetstream.Config{Clock: clock.Real{}, Ping: time.Hour})
	srv := httptest.NewServer(js)
	t.Cleanup(func() { js.Cut(); srv.Close() })
	return js, srv.URL
}

// speaker is a websocket server whose every connection is handed to say.
func speaker(t *testing.T, say func(n int, c *websocket.Conn)) (string, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	up := websocket.Upgrader{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		say(int(n.Add(1)), c)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, &n
}

// stay keeps a connection open until the other side ends it.
func stay(c *websocket.Conn) {
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			return
		}
	}
}

func good(n int64) string {
	return fmt.Sprintf(`{"did":%q,"time_us":%d,"kind":"commit","commit":{"rev":"3mzzzzzzzzz2a","operation":"create","collection":%q,"rkey":"3mzzzzzzzz%dz"}}`,
		nobody, n, ticketNSID, 100+n)
}

func next(t *testing.T, r *reading) Frame {
	t.Helper()
	select {
	case f := <-r.frames:
		return f
	case <-time.After(10 * time.Second):
		t.Fatal("no frame came")
		return Frame{}
	}
}

func TestStreamAddress(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "http://host/subscribe", "wss:///subscribe", "ws://a b/", "::", "ws://host,", "ws://me:secret@host", "ws://host/x,wss://host/y",
	} {
		_, err := ParseEndpoints(bad)
		require.ErrorIs(t, err, ErrEndpoint, bad)
	}
	es, err := ParseEndpoints("wss://a.example/subscribe, wss://b.example/xrpc/network.bsky.jetstream.subscribeEvents?x=1,ws://b.example/xrpc/com.atproto.sync.subscribeRepos")
	require.NoError(t, err)
	require.Len(t, es, 3)
	for i, want := range []string{"jetstream v1 a.example", "jetstream v2 b.example", "firehose subscribeRepos b.example"} {
		require.Equal(t, want, es[i].protocol.source+" "+es[i].protocol.name+" "+es[i].Host())
	}
}

// TestHandshakeAsksForOursFromBeforeTheCursor reads the queries of a first and a second connection.
func TestHandshakeAsksForOursFromBeforeTheCursor(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Millisecond)
	js, base := host(t)
	var cursor atomic.Int64
	r := read(t, base, func(c *SourceConfig) {
		c.Clock = &quick{ping: time.Hour}
		c.Cursor = position(cursor.Load)
	})
	until(t, func() bool { return js.Subscribers() == 1 }, "connected")
	at, err := js.Forge(nobody, "create", ticketNSID, "3mzzzzzzzzz2a", map[string]any{})
	require.NoError(t, err)
	require.Equal(t, at, next(t, r).TimeUS)
	cursor.Store(at)
	js.Cut()
	require.Equal(t, at, next(t, r).TimeUS, "the rewind tells the last ones again")
	cs := js.Connects()
	require.GreaterOrEqual(t, len(cs), 2)
	q, err := url.ParseQuery(cs[0].Query)
	require.NoError(t, err)
	require.ElementsMatch(t, Collections(), q["wantedCollections"])
	from, err := strconv.ParseInt(q.Get("cursor"), 10, 64)
	require.NoError(t, err)
	require.WithinRange(t, time.UnixMicro(from).Add(10*time.Second), began, time.Now(), "the first reading begins when it is begun")
	require.Equal(t, strconv.Itoa(2<<20), q.Get("maxMessageSizeBytes"))
	q, err = url.ParseQuery(cs[1].Query)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(at-(10*time.Second).Microseconds(), 10), q.Get("cursor"))
}

// TestB003BackOffGrowsIsBoundedAndResets counts the waits of a host that refuses, and of one that drops the link
// after each frame.
func TestB003BackOffGrowsIsBoundedAndResets(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	js := jetstream.New(jetstream.Config{Clock: clock.Real{}, Ping: time.Hour})
	js.SetFaults(jetstream.Faults{CutAfter: 1})
	_, err := js.Forge(nobody, "create", ticketNSID, "3mzzzzzzzzz2a", map[string]any{})
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) <= 12 {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		js.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	q := &quick{ping: time.Hour}
	r := read(t, srv.URL, func(c *SourceConfig) {
		c.Clock = q
		c.Cursor = position(func() int64 { return 1 })
	})
	until(t, func() bool { return len(q.waits()) >= 24 }, "reconnects")
	r.end(t)
	distinct := map[time.Duration]bool{}
	for i, d := range q.waits()[:24] {
		want := min(firstWait<<min(i, 11), mostWait)
		if i >= 12 {
			want = firstWait // each connection brought a frame
		}
		require.GreaterOrEqual(t, d, want/2, "wait %d", i)
		require.Less(t, d, want, "wait %d", i)
		if i >= 12 {
			distinct[d] = true
		}
	}
	require.Greater(t, len(distinct), 1, "the waits are jittered")
}

// TestB007QuietIsNotBroken keeps a host silent for many times the read deadline; pings are answered.
func TestB007QuietIsNotBroken(t *testing.T) {
	t.Parallel()
	js, base := host(t)
	js.SetFaults(jetstream.Faults{Silence: true})
	r := read(t, base, func(c *SourceConfig) { c.Ping = 500 * time.Millisecond })
	until(t, func() bool { return js.Subscribers() == 1 }, "connected")
	require.Never(t, func() bool { return len(js.Connects()) > 1 }, 2*time.Second, 20*time.Millisecond)
	up, changes := r.last()
	require.True(t, up)
	require.Equal(t, 1, changes)
}

// TestSilentHostIsLeft meets a host that holds the socket open and answers no ping.
func TestSilentHostIsLeft(t *testing.T) {
	t.Parallel()
	js, base := host(t)
	js.SetFaults(jetstream.Faults{Dead: true})
	r := read(t, base, func(c *SourceConfig) { c.Ping = 20 * time.Millisecond; c.Clock = &quick{ping: 20 * time.Millisecond} })
	until(t, func() bool { return len(js.Connects()) >= 3 }, "the dead host is left and tried again")
	js.SetFaults(jetstream.Faults{})
	until(t, func() bool {
		_, err := js.Forge(nobody, "create", ticketNSID, "3mzzzzzzzzz2a", map[string]any{})
		return err == nil && len(r.frames) > 0
	}, "and frames come when it lives again")
}

// TestPingsOfTheHostAreAnswered has a host that waits for our pong.
func TestPingsOfTheHostAreAnswered(t *testing.T) {
	t.Parallel()
	ponged := make(chan string, 1)
	base, _ := speaker(t, func(_ int, c *websocket.Conn) {
		c.SetPongHandler(func(s string) error {
			select {
			case ponged <- s:
			default:
			}
			return nil
		})
		_ = c.WriteControl(websocket.PingMessage, []byte("there?"), time.Now().Add(time.Second))
		stay(c)
	})
	read(t, base)
	select {
	case s := <-ponged:
		require.Equal(t, "there?", s)
	case <-time.After(10 * time.Second):
		t.Fatal("no pong")
	}
}

// TestB012BrokenMessagesAreCountedAndPassedOver sends what is no frame in every way, and then one that is.
func TestB012BrokenMessagesAreCountedAndPassedOver(t *testing.T) {
	t.Parallel()
	text := []string{
		`{}`, ``, `null`, `[]`, `"x"`, `{`, strings.Repeat("[", 20_000), "\x00\xff\xfe",
		`{"kind":"commit","did":"","time_us":0,"commit":{}}`,
		`{"kind":"commit","did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":1790000000000001,"commit":{"operation":"create","collection":"sh.tangled.repo"}}`,
		`{"kind":"commit","did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":-5,"commit":{"rev":"a","collection":"b","rkey":"c"}}`,
		`{"kind":"commit","did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":99999999999999999999}`,
		`{"kind":"commit","did":["x"],"time_us":5}`,
		`{"kind":"commit","did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":5,"commit":"x"}`,
		good(1)[:60], good(1) + good(2), strings.Repeat(" ", 5000) + good(3),
	}
	base, connects := speaker(t, func(_ int, c *websocket.Conn) {
		for _, s := range text {
			_ = c.WriteMessage(websocket.TextMessage, []byte(s))
		}
		_ = c.WriteMessage(websocket.BinaryMessage, []byte(good(4)))
		_ = c.WriteMessage(websocket.TextMessage, []byte(`{"did":"x","time_us":7,"kind":"novelty"}`)) // a kind of the future is no fault
		_ = c.WriteMessage(websocket.TextMessage, []byte(good(8)))
		stay(c)
	})
	r := read(t, base, func(c *SourceConfig) { c.Endpoints[0].protocol.most = 4096 })
	require.Equal(t, "novelty", next(t, r).Kind)
	require.EqualValues(t, 8, next(t, r).TimeUS)
	require.EqualValues(t, len(text)+1, r.bad.Load())
	require.EqualValues(t, 1, connects.Load(), "one connection outlives it all")
}

// TestHugeMessageIsReadPast sends a message far above the bound, in pieces: were it to end the connection, every
// later one would meet it again behind the cursor.
func TestHugeMessageIsReadPast(t *testing.T) {
	t.Parallel()
	base, connects := speaker(t, func(_ int, c *websocket.Conn) {
		w, err := c.NextWriter(websocket.TextMessage)
		if err != nil {
			return
		}
		piece := []byte(strings.Repeat("x", 1<<16))
		for range 64 {
			_, _ = w.Write(piece)
		}
		_ = w.Close()
		_ = c.WriteMessage(websocket.TextMessage, []byte(good(1)))
		stay(c)
	})
	r := read(t, base, func(c *SourceConfig) { c.Endpoints[0].protocol.most = 1000 })
	require.EqualValues(t, 1, next(t, r).TimeUS)
	require.EqualValues(t, 1, r.bad.Load())
	require.EqualValues(t, 1, connects.Load())
}

// TestNoiseIsTold reports a host that sends only what cannot be read, and takes it back when a frame comes.
func TestNoiseIsTold(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	base, _ := speaker(t, func(_ int, c *websocket.Conn) {
		for range badInARow {
			_ = c.WriteMessage(websocket.TextMessage, []byte("noise"))
		}
		<-more
		_ = c.WriteMessage(websocket.TextMessage, []byte(good(1)))
		stay(c)
	})
	r := read(t, base)
	until(t, func() bool { up, n := r.last(); return !up && n == 2 }, "noise is told")
	close(more)
	next(t, r)
	until(t, func() bool { up, n := r.last(); return up && n == 3 }, "and taken back")
}

// TestBrokenConnectionsAreLeft breaks the protocol below the messages; the next connection works.
func TestBrokenConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	raw := [][]byte{
		{0x81, 0x7e, 0x10, 0x00, 'x'},                              // half a frame
		{0x81, 0x7f, 0x7f, 255, 255, 255, 255, 255, 255, 255, 'x'}, // a length of nine exabytes
		{0xff, 0x01, 'x'},                                          // reserved bits
		{0x80, 0x01, 'x'},                                          // a continuation of nothing
		{0x89, 0x7e, 0x00, 0xff},                                   // a ping that is too long
		{0x81, 0x81, 1, 2, 3, 4, 'x'},                              // a server must not mask
		{0x88, 0x01, 'x'},                                          // a close frame of one byte
		{},
	}
	base, connects := speaker(t, func(n int, c *websocket.Conn) {
		if n <= len(raw) {
			_, _ = c.NetConn().Write(raw[n-1])
			return
		}
		_ = c.WriteMessage(websocket.TextMessage, []byte(good(1)))
		stay(c)
	})
	r := read(t, base, func(c *SourceConfig) { c.Clock = &quick{ping: time.Hour} })
	require.EqualValues(t, 1, next(t, r).TimeUS)
	require.EqualValues(t, len(raw)+1, connects.Load())
}

// TestStreamEndsWithItsContext ends it while it waits to connect, for a frame, for a taker, and to try again.
func TestStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	js, base := host(t)
	until(t, func() bool {
		_, err := js.Forge(nobody, "create", ticketNSID, "3mzzzzzzzzz2a", map[string]any{})
		return err == nil
	}, "an event")
	held := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(held)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { hung.CloseClientConnections(); hung.Close() })
	connecting := read(t, hung.URL)
	<-held
	connecting.end(t)

	waiting := read(t, base)
	until(t, func() bool { return js.Subscribers() == 1 }, "connected")
	waiting.end(t)
	until(t, func() bool { return js.Subscribers() == 0 }, "the host sees it leave")

	taken := make(chan struct{})
	blocked := read(t, base, func(c *SourceConfig) {
		c.Cursor = position(func() int64 { return 1 })
		c.Sink = func(ctx context.Context, _ Endpoint, _ Frame) error { close(taken); <-ctx.Done(); return ctx.Err() }
	})
	<-taken
	blocked.end(t)

	failing := read(t, "http://127.0.0.1:1")
	until(t, func() bool { _, n := failing.last(); return n == 1 }, "refused")
	failing.end(t)
}

// TestReadingKeepsItsCursorError tries again when the cursor cannot be read.
func TestReadingKeepsItsCursorError(t *testing.T) {
	t.Parallel()
	js, base := host(t)
	var n atomic.Int64
	read(t, base, func(c *SourceConfig) {
		c.Clock = &quick{ping: time.Hour}
		c.Cursor = func(context.Context, Endpoint) (Position, error) {
			if n.Add(1) < 3 {
				return Position{}, errDown
			}
			return Position{}, nil
		}
	})
	until(t, func() bool { return js.Subscribers() == 1 }, "connected after all")
	require.EqualValues(t, 3, n.Load())
}
