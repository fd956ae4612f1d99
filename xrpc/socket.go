package xrpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// stream is one websocket that a subscriber reads from. Its frames are written by the goroutine that runs
// the stream's handler; pings and the reading side have a goroutine of their own, which end with it.
type stream struct {
	ws    *websocket.Conn
	kind  string
	s     *Server
	write time.Duration
}

// errClosing ends streams when the server stops.
var errClosing = errors.New("xrpc: the server is closing")

// errGone is a subscriber that went away or takes nothing any more.
var errGone = errors.New("xrpc: the subscriber is gone")

// admitted checks what a subscriber asks for before the upgrade; its error is answered as JSON.
type admitted[T any] func(r *http.Request) (T, error)

// serveStream takes a stream from its first byte to its last: limits, checks that can still be answered
// with JSON, the upgrade, and then run until it returns or the subscriber is gone. The context of run ends
// when either side goes. An error of run for the caller is sent as last, shaped by onError.
func serveStream[T any](s *Server, kind string, admit admitted[T], run func(ctx context.Context, st *stream, v T) error, onError func(*Error) (int, []byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, leave, err := prepare(s, r, admit)
		if err != nil {
			s.m.calls.WithLabelValues(kind, string(s.writeError(w, r, kind, err))).Inc()
			return
		}
		defer leave()
		ws, err := s.upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the upgrader has answered through refuseUpgrade
		}
		s.m.calls.WithLabelValues(kind, "ok").Inc()
		s.m.streams.WithLabelValues(kind).Inc()
		defer s.m.streams.WithLabelValues(kind).Dec()
		st := &stream{ws: ws, kind: kind, s: s, write: s.c.Limits.Write}
		st.serve(r.Context(), func(ctx context.Context) error { return run(ctx, st, v) }, onError)
	}
}

// prepare does what comes before an upgrade and takes a slot, which leave gives back.
func prepare[T any](s *Server, r *http.Request, admit admitted[T]) (v T, leave func(), err error) {
	addr := s.address(r)
	if wait := s.addresses.take(addr); wait > 0 {
		return v, nil, &Error{Code: RateLimitExceeded, Message: "too many calls from this address; try again later", RetryAfter: wait}
	}
	if r.Method != http.MethodGet || !websocket.IsWebSocketUpgrade(r) {
		return v, nil, refuse(InvalidRequest, "this is a stream: open it as a websocket")
	}
	if !s.originAllowed(r) {
		return v, nil, refuse(Forbidden, "pages of this origin may not open streams here; the spindle's owner can allow it")
	}
	if !s.slots.take(addr) {
		return v, nil, &Error{Code: TooManySubscribers, Message: "too many streams are open; close one or try again later", RetryAfter: retryLater}
	}
	if !s.enter() {
		s.slots.give(addr)
		return v, nil, &Error{Code: NotEnoughResources, Message: "the spindle is about to restart; open the stream again", RetryAfter: retryLater}
	}
	leave = func() {
		s.slots.give(addr)
		s.streams.Done()
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.c.Limits.Call)
	defer cancel()
	if v, err = admit(r.WithContext(ctx)); err != nil {
		leave()
		return v, nil, err
	}
	return v, leave, nil
}

// refuseUpgrade answers a handshake that gorilla/websocket refuses.
func (s *Server) refuseUpgrade(w http.ResponseWriter, r *http.Request, status int, _ error) {
	code := InvalidRequest
	if status == http.StatusForbidden {
		code = Forbidden
	}
	s.writeError(w, r, "upgrade", refuse(code, "the websocket handshake is not acceptable"))
}

// serve runs the stream and closes it. It returns when every goroutine of the stream has ended.
func (st *stream) serve(parent context.Context, run func(ctx context.Context) error, onError func(*Error) (int, []byte, error)) {
	ctx, cancel := context.WithCancelCause(parent)
	var wg sync.WaitGroup
	wg.Go(func() { st.read(cancel) })
	wg.Go(func() { st.ping(ctx, cancel) })
	wg.Go(func() {
		select {
		case <-st.s.stop:
			cancel(errClosing)
		case <-ctx.Done():
		}
	})
	err := run(ctx)
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		st.bye(websocket.CloseNormalClosure, "")
	case errors.Is(cause, errClosing):
		st.bye(websocket.CloseGoingAway, "the spindle is about to restart")
	case cause != nil, errors.Is(err, errGone):
		// The subscriber is gone or too slow; there is nobody to tell.
	default:
		e := public(err)
		if e.Code == InternalServerError {
			st.s.log.LogAttrs(ctx, slog.LevelError, "a stream failed", slog.String("stream", st.kind), slog.Any("error", err))
		}
		if kind, b, err := onError(e); err == nil && b != nil {
			_ = st.send(kind, b)
		}
		st.bye(websocket.CloseInternalServerErr, string(e.Code))
	}
	cancel(nil)
	_ = st.ws.Close()
	wg.Wait()
}

// send writes one frame before the write deadline. An error means that the subscriber is gone or too slow.
func (st *stream) send(kind int, b []byte) error {
	// The deadline is the kernel's, which knows the machine's clock only.
	err := st.ws.SetWriteDeadline(time.Now().Add(st.write))
	if err == nil {
		err = st.ws.WriteMessage(kind, b)
	}
	if err != nil {
		return errors.Join(errGone, err)
	}
	st.s.m.frames.WithLabelValues(st.kind).Inc()
	return nil
}

// bye sends a close frame.
func (st *stream) bye(code int, text string) {
	_ = st.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(st.write))
}

// maxInbound is the largest message that a subscriber may send; none has a meaning.
const maxInbound = 4 << 10

// read reads what the subscriber sends until it is gone. Only control frames matter: a subscriber that
// answers no ping for two and a half intervals is gone.
func (st *stream) read(cancel context.CancelCauseFunc) {
	alive := st.s.c.Limits.Ping*5/2 + st.write
	extend := func(string) error { return st.ws.SetReadDeadline(time.Now().Add(alive)) }
	st.ws.SetReadLimit(maxInbound)
	st.ws.SetPongHandler(extend)
	_ = extend("")
	for {
		if _, _, err := st.ws.NextReader(); err != nil {
			cancel(err)
			return
		}
	}
}

// ping keeps proxies from closing an idle stream and finds out subscribers that are gone.
func (st *stream) ping(ctx context.Context, cancel context.CancelCauseFunc) {
	for st.s.clock.Sleep(ctx, st.s.c.Limits.Ping) == nil {
		if err := st.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(st.write)); err != nil {
			cancel(err)
			return
		}
	}
}
