package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"spindle/store"
)

// knotSource is the source of the cursors of knots' streams.
const knotSource = "knot"

// The protocols of knots' streams.
const (
	newerProtocol = "pushes" // org.tangled.git.subscribePushes; cursors are numbers that the knot gives out
	olderProtocol = "events" // /events; cursors are nanoseconds since 1970
)

const (
	knotPing = 30 * time.Second
	// knotRewind is how far before its cursor the older stream is read again. Its times are those of record keys,
	// which are made a moment before what the knot compares cursors with, and by several requests at a time.
	knotRewind = 2 * time.Second
	// knotAge is how old a push may be and still start something.
	knotAge = 7 * 24 * time.Hour
	// resetEvery is how often a knot may make us begin anew.
	resetEvery = 10 * time.Minute
	// absentWait is how long a stream is left alone that a knot does not have; it doubles up to absentMost.
	absentWait = 5 * time.Minute
	absentMost = 2 * time.Hour
)

// errAbsent is a knot without this stream.
var errAbsent = errors.New("ingest: the knot does not have this stream")

// knotStream follows one stream of one knot.
type knotStream struct {
	in       *Ingest
	host     string // with the port, if there is one
	origin   string // URL of the knot
	protocol string
	floor    time.Time // what is older is not asked for on the first reading of the older stream
	state    func(up bool, detail string)

	reset time.Time // when the cursor was dropped last
	from  int64     // the cursor that the last connection began with
	fresh bool      // the cursor was dropped: begin at the knot's beginning
	saved time.Time // when the cursor was saved last
}

// run reads until ctx ends. A connection that brought something, or lived for a minute, ends the growing of waits.
func (s *knotStream) run(ctx context.Context) {
	wait, absent := firstWait, absentWait
	for ctx.Err() == nil {
		began := s.in.c.Clock.Now()
		got, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if got || s.in.c.Clock.Now().Sub(began) > time.Minute {
			wait, absent = firstWait, absentWait
		}
		d := wait/2 + rand.N(wait/2)
		switch {
		case errors.Is(err, errFuture):
			if s.renumbered(ctx, "it refuses our cursor as one of the future") {
				continue
			}
		case errors.Is(err, errAbsent):
			s.state(true, "no such stream")
			d = absent/2 + rand.N(absent/2)
			absent = min(2*absent, absentMost)
		default:
			s.state(false, fmt.Sprint(err))
		}
		s.in.c.Log.Info("stream of a knot ended", "knot", s.host, "stream", s.protocol, "err", err, "again_in", d)
		if s.in.c.Clock.Sleep(ctx, d) != nil {
			return
		}
		wait = min(wait*2, mostWait)
	}
}

// renumbered drops the cursor of a host that counts anew and asks for what was missed, once in a while only: a host
// could do nothing else.
func (s *knotStream) renumbered(ctx context.Context, why string) bool {
	now := s.in.c.Clock.Now()
	if !s.reset.IsZero() && now.Sub(s.reset) < resetEvery {
		s.state(false, "the knot keeps losing its place: "+why)
		return false
	}
	// The gap stands before the cursor goes: a kill between the two drops the cursor once more.
	_, err := s.in.c.Store.Accept(ctx, store.Effects{Gap: &store.Gap{Source: knotSource, Host: s.host, Protocol: s.protocol, Reason: "the knot counts anew: " + why}})
	if err == nil {
		err = s.in.c.Store.ForgetCursor(ctx, knotSource, s.host, s.protocol)
	}
	if err != nil {
		s.in.c.Log.Error("drop the cursor of a knot", "knot", s.host, "err", err)
		return false
	}
	s.reset, s.fresh = now, true
	s.in.c.Count("knot_renumbered")
	s.in.c.Log.Warn("a knot counts its events anew; reading it from its beginning and catching up", "knot", s.host, "stream", s.protocol, "why", why)
	s.state(false, "counts anew: "+why)
	s.in.wakeCatchUp()
	return true
}

// address is what to connect to, and the place that was read up to.
func (s *knotStream) address(ctx context.Context) (string, int64, error) {
	u, err := url.Parse(s.origin)
	if err != nil {
		return "", 0, fmt.Errorf("address of the knot: %w", err)
	}
	c, known, err := s.in.c.Store.Cursor(ctx, knotSource, s.host, s.protocol)
	if err != nil {
		return "", 0, fmt.Errorf("read the cursor: %w", err)
	}
	u.Scheme = map[string]string{"https": "wss", "http": "ws"}[u.Scheme]
	u.Path = "/events"
	begin := c.Value
	switch {
	case s.protocol == newerProtocol:
		u.Path = "/xrpc/org.tangled.git.subscribePushes"
	case known && c.Value != s.from:
		begin = max(c.Value-knotRewind.Nanoseconds(), 0)
	case known: // read again, and not got further: a host that cuts within the rewind would be read for ever
	case !s.fresh:
		begin, known = s.floor.UnixNano(), true
	}
	if known || s.fresh {
		u.RawQuery = url.Values{"cursor": {strconv.FormatInt(begin, 10)}}.Encode()
	}
	s.from = c.Value
	return u.String(), c.Value, nil
}

// once reads one connection to its end; got tells whether it brought a message.
func (s *knotStream) once(ctx context.Context) (got bool, err error) {
	address, last, err := s.address(ctx)
	if err != nil {
		return false, err
	}
	conn, err := s.connect(ctx, address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var pinger sync.WaitGroup
	pinger.Go(func() { pingUntil(ctx, s.in, conn) })
	defer func() { cancel(); pinger.Wait() }()
	extend := func() error { return conn.SetReadDeadline(time.Now().Add(3 * knotPing)) }
	conn.SetPongHandler(func(string) error { return extend() })
	s.state(true, "connected")
	first := true
	for {
		if err := extend(); err != nil {
			return got, fmt.Errorf("set the read deadline: %w", err)
		}
		_, r, err := conn.NextReader()
		if err != nil {
			return got, fmt.Errorf("read: %w", err)
		}
		msg, err := readMessage(r)
		if err != nil {
			return got, fmt.Errorf("read: %w", err)
		}
		f, err := s.parse(msg)
		if errors.Is(err, ErrFrame) {
			s.in.c.Count("knot_bad_frame")
			continue
		}
		if err != nil {
			return got, err
		}
		got = true
		if first && s.protocol == newerProtocol && f.place > 0 && f.place < last && s.renumbered(ctx, "it gives out numbers that were given out before") {
			last = 0
		}
		first, s.fresh = false, false
		if last, err = s.take(ctx, f, last); err != nil {
			return got, err
		}
	}
}

// readMessage reads one message whole, or reads past one that is too long: it ends nothing, or the next connection
// would come upon it again.
func readMessage(r io.Reader) ([]byte, error) {
	msg, err := io.ReadAll(io.LimitReader(r, maxKnotFrame+1))
	if err != nil || len(msg) <= maxKnotFrame {
		return msg, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(r, 64<<20))
	return nil, err
}

func (s *knotStream) parse(msg []byte) (knotFrame, error) {
	if s.protocol == newerProtocol {
		return newerFrame(msg)
	}
	return olderFrame(msg)
}

// take commits what a message hints at, together with the cursor.
func (s *knotStream) take(ctx context.Context, f knotFrame, last int64) (int64, error) {
	now := s.in.c.Clock.Now()
	place := max(f.place, last)
	if s.protocol == olderProtocol && f.at.After(now.Add(maxAhead)) {
		// A cursor never goes back, so one message from the far future would leave every later one unread.
		s.in.c.Count("knot_future_frame")
		place = last
	}
	var e store.Effects
	switch {
	case f.kind == "":
		s.in.c.Count("knot_other_event")
	case now.Sub(f.at) > knotAge:
		s.in.c.Count("knot_old_event")
	default:
		h, ok, err := s.in.claimHint(ctx, s.host, f)
		if err != nil {
			return last, err
		}
		if ok {
			e.Rechecks = []store.Recheck{h}
		}
	}
	if len(e.Rechecks) == 0 && now.Sub(s.saved) < idleSave {
		return place, nil
	}
	if place > 0 {
		e.Cursor = &store.Cursor{Source: knotSource, Host: s.host, Protocol: s.protocol, Value: place}
	}
	if _, err := s.in.c.Store.Accept(ctx, e); err != nil {
		return last, fmt.Errorf("write a hint and the cursor: %w", err)
	}
	s.saved = now
	if len(e.Rechecks) > 0 {
		s.in.wakeProvers()
	}
	return place, nil
}

// connect opens the websocket.
func (s *knotStream) connect(ctx context.Context, address string) (*websocket.Conn, error) {
	dial := s.in.c.Dial
	release := func() bool { return true }
	defer func() { release() }()
	d := websocket.Dialer{HandshakeTimeout: 15 * time.Second, NetDialContext: func(c context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(c, network, addr)
		if err == nil {
			// The dialer does not watch ctx while it waits for the host's answer.
			release = context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}}
	conn, res, err := d.DialContext(ctx, address, http.Header{"User-Agent": {"spindle"}})
	if err == nil {
		return conn, nil
	}
	if res == nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, rerr := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	switch {
	case rerr == nil && res.StatusCode == http.StatusBadRequest && strings.Contains(string(body), futureCursor):
		return nil, errFuture
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNotImplemented,
		res.StatusCode == http.StatusOK, res.StatusCode == http.StatusGone:
		return nil, fmt.Errorf("%w (HTTP %d)", errAbsent, res.StatusCode)
	}
	return nil, fmt.Errorf("connect: %w (HTTP %d)", err, res.StatusCode)
}

// pingUntil pings until ctx ends and then closes the connection, which is the only way to end a read.
func pingUntil(ctx context.Context, in *Ingest, conn *websocket.Conn) {
	for in.c.Clock.Sleep(ctx, knotPing) == nil {
		if err := conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(5*time.Second)); err != nil {
			break
		}
	}
	// The other side may be gone; closing is all that is left to do.
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	_ = conn.Close()
}
