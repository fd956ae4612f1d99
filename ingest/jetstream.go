package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"spindle/internal/clock"
)

// StreamConfig is what a Stream needs. URL, Sink, Clock and Log are required.
type StreamConfig struct {
	// URL is the subscribe endpoint, such as wss://host/subscribe.
	URL string
	// Collections are asked for; the server then sends no commits of others.
	Collections []string
	// Dial opens the connection; nil is an unguarded dial and fit for tests only.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Sink takes frames in order. It may block: then the socket's own flow control holds the server back.
	Sink func(ctx context.Context, f Frame) error
	// Cursor is where to begin, in microseconds; 0 means live. It is asked before every connection.
	Cursor func(ctx context.Context) (int64, error)
	// State is told of every change of the connection; may be nil.
	State func(up bool, detail string)
	// Bad is told of a frame that could not be read and was passed over; may be nil.
	Bad   func()
	Clock clock.Clock
	Log   *slog.Logger
	// Rewind is how far before the cursor to begin; 0 means 10 s.
	Rewind time.Duration
	// Ping is how often to ping; 0 means 20 s. A connection without any sign of life for three pings is closed.
	Ping time.Duration
	// MaxFrame bounds what is kept of one message; 0 means 2 MiB. The server is asked not to send larger ones,
	// and one that it sends all the same is read past.
	MaxFrame int64
}

// Stream reads one Jetstream host for ever. Make it with NewStream and call Run once.
type Stream struct{ c StreamConfig }

// NewStream returns a stream, or an error when its URL is not one.
func NewStream(c StreamConfig) (*Stream, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "ws" && u.Scheme != "wss") {
		return nil, fmt.Errorf("jetstream endpoint %q is not a ws:// or wss:// address", c.URL)
	}
	if c.Rewind <= 0 {
		c.Rewind = 10 * time.Second
	}
	if c.Ping <= 0 {
		c.Ping = 20 * time.Second
	}
	if c.MaxFrame <= 0 {
		c.MaxFrame = 2 << 20
	}
	if c.State == nil {
		c.State = func(bool, string) {}
	}
	if c.Bad == nil {
		c.Bad = func() {}
	}
	return &Stream{c: c}, nil
}

// Back-off between connections: the first wait and the longest.
const (
	firstWait = 500 * time.Millisecond
	mostWait  = time.Minute
)

// Run connects and reads until ctx ends. A connection that brought a frame, or lived for a minute, resets
// the back-off: after it the wait is the first step again.
func (s *Stream) Run(ctx context.Context) error {
	wait, rewind, from := firstWait, s.c.Rewind, int64(-1)
	// A reading without a cursor begins when it was begun, and not when the host has let it in: whoever chooses the
	// server as soon as it answers may be told of before that, or between two connections.
	floor := s.c.Clock.Now().UnixMicro()
	for ctx.Err() == nil {
		began := s.c.Clock.Now()
		got, err := s.once(ctx, floor, rewind)
		if ctx.Err() != nil {
			break
		}
		now := s.c.Clock.Now()
		if got.last > 0 || now.Sub(began) > time.Minute {
			wait = firstWait
		}
		rewind = s.c.Rewind
		if got.last > 0 && (now.Sub(time.UnixMicro(got.last)) > catchingUp || got.from == from) {
			rewind = 0
		}
		from = got.from
		s.c.State(false, fmt.Sprint(err))
		// Half fixed, half random: hosts that come back are not met by everybody at once.
		d := wait/2 + rand.N(wait/2)
		s.c.Log.Warn("jetstream connection ended", "host", s.host(), "err", err, "again_in", d)
		if s.c.Clock.Sleep(ctx, d) != nil {
			break
		}
		wait = min(wait*2, mostWait)
	}
	return nil
}

// catchingUp is how old frames are that are history: told in order, so that what comes before the cursor need
// not be told again. Nor is it when it was told twice without getting further: a host that cuts the connection
// within what the rewind brings would otherwise be read for ever.
const catchingUp = time.Minute

// progress is what a connection brought.
type progress struct {
	from int64 // the cursor that it began with
	last int64 // the time of its last frame; 0: none came
}

func (s *Stream) host() string {
	u, err := url.Parse(s.c.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// address is the URL with the filter and the place to begin, in microseconds.
func (s *Stream) address(cursor int64) string {
	u, err := url.Parse(s.c.URL)
	if err != nil {
		return s.c.URL
	}
	q := u.Query()
	for _, c := range s.c.Collections {
		q.Add("wantedCollections", c)
	}
	q.Set("maxMessageSizeBytes", strconv.FormatInt(s.c.MaxFrame, 10))
	if cursor > 0 {
		q.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// once reads one connection to its end. It begins rewind before the cursor, or before floor when there is none.
func (s *Stream) once(ctx context.Context, floor int64, rewind time.Duration) (got progress, err error) {
	if got.from, err = s.c.Cursor(ctx); err != nil {
		return got, fmt.Errorf("read the cursor: %w", err)
	}
	if got.from == 0 {
		got.from = floor
	}
	begin := got.from
	if begin > 0 {
		begin = max(begin-rewind.Microseconds(), 1)
	}
	conn, res, err := s.connect(ctx, s.address(begin))
	if err != nil {
		if res != nil {
			return got, fmt.Errorf("connect: %w (HTTP %d)", err, res.StatusCode)
		}
		return got, fmt.Errorf("connect: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var pinger sync.WaitGroup
	// Closing the connection is the only way to end a read.
	pinger.Go(func() { s.ping(ctx, conn) })
	defer func() {
		cancel()
		pinger.Wait()
	}()
	s.c.State(true, "connected")
	s.liveness(conn)
	bad := 0
	for {
		if err := conn.SetReadDeadline(s.c.Clock.Now().Add(3 * s.c.Ping)); err != nil {
			return got, fmt.Errorf("set the read deadline: %w", err)
		}
		kind, r, err := conn.NextReader()
		if err != nil {
			return got, fmt.Errorf("read: %w", err)
		}
		f, err := s.frame(kind, r)
		if errors.Is(err, ErrFrame) {
			s.c.Bad()
			if bad++; bad == badInARow {
				s.c.State(false, fmt.Sprintf("%d messages in a row could not be read: is this a Jetstream?", bad))
			}
			continue
		}
		if err != nil {
			return got, fmt.Errorf("read: %w", err)
		}
		if bad >= badInARow {
			s.c.State(true, "connected")
		}
		got.last, bad = f.TimeUS, 0
		if err := s.c.Sink(ctx, f); err != nil {
			return got, fmt.Errorf("take a frame: %w", err)
		}
	}
}

// connect opens the websocket. The dialer does not watch ctx while it waits for the host's answer, so the end of
// ctx closes the connection beneath it.
func (s *Stream) connect(ctx context.Context, address string) (*websocket.Conn, *http.Response, error) {
	dial := s.c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	release := func() bool { return true }
	defer func() { release() }()
	d := websocket.Dialer{HandshakeTimeout: 15 * time.Second, NetDialContext: func(c context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(c, network, addr)
		if err == nil {
			release = context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}}
	return d.DialContext(ctx, address, http.Header{"User-Agent": {"spindle"}})
}

// badInARow is how many unreadable messages in a row mean that the host does not speak what we understand.
const badInARow = 100

// frame reads one message. What is not a frame is ErrFrame and has been read to its end: were it to end the
// connection, the next one would come upon the same message again, for ever.
func (s *Stream) frame(kind int, r io.Reader) (Frame, error) {
	msg, err := io.ReadAll(io.LimitReader(r, s.c.MaxFrame+1))
	if err != nil {
		return Frame{}, fmt.Errorf("message broken off: %w", err)
	}
	if int64(len(msg)) > s.c.MaxFrame {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return Frame{}, fmt.Errorf("message broken off: %w", err)
		}
		return Frame{}, ErrFrame
	}
	if kind != websocket.TextMessage {
		return Frame{}, ErrFrame
	}
	return parseFrame(msg)
}

// liveness lets pings and pongs extend the read deadline: a quiet stream is not a broken one.
func (s *Stream) liveness(conn *websocket.Conn) {
	extend := func() error {
		if err := conn.SetReadDeadline(s.c.Clock.Now().Add(3 * s.c.Ping)); err != nil {
			return fmt.Errorf("set the read deadline: %w", err)
		}
		return nil
	}
	conn.SetPongHandler(func(string) error { return extend() })
	conn.SetPingHandler(func(data string) error {
		err := conn.WriteControl(websocket.PongMessage, []byte(data), s.c.Clock.Now().Add(5*time.Second))
		var ne net.Error
		if err != nil && !errors.Is(err, websocket.ErrCloseSent) && !(errors.As(err, &ne) && ne.Timeout()) {
			return fmt.Errorf("answer a ping: %w", err)
		}
		return extend()
	})
}

// ping pings until ctx ends and then closes the connection.
func (s *Stream) ping(ctx context.Context, conn *websocket.Conn) {
	for s.c.Clock.Sleep(ctx, s.c.Ping) == nil {
		if err := conn.WriteControl(websocket.PingMessage, nil, s.c.Clock.Now().Add(5*time.Second)); err != nil {
			break
		}
	}
	// The other side may be gone; closing is all that is left to do.
	_ = conn.WriteControl(websocket.CloseMessage,
		websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), s.c.Clock.Now().Add(time.Second))
	_ = conn.Close()
}
