package xrpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"spindle/lexicons"
)

// call is one query or procedure.
type call struct {
	nsid string
	// verb is GET for a query and POST for a procedure. Empty: nobody knows the method.
	verb string
	// auth asks for a service token; then request.caller is set.
	auth bool
	run  func(ctx context.Context, q request) (any, error)
}

// unknownMethod stands in metrics for every method that is not served.
const unknownMethod = "unknown"

// request is what a handler gets of an HTTP request.
type request struct {
	caller string // verified DID; empty without auth
	query  url.Values
	body   []byte // of a procedure
}

// empty is the answer of a call that has no output.
type empty struct{}

// params reads the parameters of a query by its lexicon.
func (s *Server) params(nsid string, q request) (lexicons.Params, error) {
	p, err := lexicons.ParseParams(s.catalog, nsid, q.query)
	if err != nil {
		return nil, malformed(err)
	}
	return p, nil
}

// input reads the body of a procedure by its lexicon.
func input[T any](s *Server, nsid string, q request) (*T, error) {
	v, err := lexicons.DecodeInput[T](s.catalog, nsid, q.body)
	if err != nil {
		return nil, errors.Join(malformed(err), err)
	}
	return v, nil
}

// eventInput tells an event of an unknown kind apart from a malformed body.
func eventInput(err error) error {
	if errors.Is(err, lexicons.ErrUnknownMember) {
		return refuse(EventNotSupported, "this spindle does not know events of that kind")
	}
	return err
}

// maxSentence bounds what a message repeats of the caller's own input, in bytes.
const maxSentence = 300

// malformed is an InvalidRequest that says what the lexicon does not allow. Those errors speak of the
// caller's own input and of nothing inside.
func malformed(err error) *Error {
	text := err.Error()
	if len(text) > maxSentence {
		text = text[:maxSentence] + "…"
	}
	return refuse(InvalidRequest, text)
}

// serve is the way that every call goes.
func (s *Server) serve(c call) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := s.clock.Now()
		ctx, cancel := context.WithTimeout(r.Context(), s.c.Limits.Call)
		defer cancel()
		r = r.WithContext(ctx)
		out, err := s.answer(w, r, c)
		code := Code("ok")
		switch {
		case err != nil:
			code = s.writeError(w, r, c.nsid, err)
		case out == empty{}:
			w.WriteHeader(http.StatusOK)
		default:
			writeJSON(w, http.StatusOK, out)
		}
		s.m.calls.WithLabelValues(c.nsid, string(code)).Inc()
		s.m.duration.WithLabelValues(c.nsid).Observe(s.clock.Now().Sub(start).Seconds())
	}
}

// answer takes a call from its first byte to its answer. The order matters: what costs least comes first.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, c call) (any, error) {
	addr := s.address(r)
	if wait := s.addresses.take(addr); wait > 0 {
		return nil, &Error{Code: RateLimitExceeded, Message: "too many calls from this address; try again later", RetryAfter: wait}
	}
	if c.verb == "" {
		return nil, refuse(MethodNotImplemented, "this spindle does not know that method")
	}
	if r.Method != c.verb {
		w.Header().Set("Allow", c.verb)
		return nil, refuse(MethodNotAllowed, "this method is called with "+c.verb)
	}
	q := request{}
	var err error
	if c.auth {
		if q.caller, err = s.caller(r, c.nsid, addr); err != nil {
			return nil, err
		}
	}
	if q.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, refuse(InvalidRequest, "the query of the address cannot be read")
	}
	if c.verb == http.MethodPost {
		if q.body, err = readBody(w, r); err != nil {
			return nil, err
		}
	}
	return c.run(r.Context(), q)
}

// readBody reads a JSON body of at most maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, refuse(UnsupportedMediaType, "the body must be JSON: Content-Type: application/json")
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		return nil, refuse(PayloadTooLarge, "the body may have 1 MiB at most")
	}
	if err != nil {
		return nil, refuse(InvalidRequest, "the body ended early")
	}
	return b, nil
}

// recovered answers for a handler that panicked, and keeps the server up.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
				panic(p)
			}
			s.m.panics.Inc()
			s.log.ErrorContext(r.Context(), "a call panicked", "panic", p, "stack", string(debug.Stack()))
			writeJSON(w, http.StatusInternalServerError, body{Error: InternalServerError, Message: "the server failed; nothing is known to have changed"})
		}()
		next.ServeHTTP(w, r)
	})
}

// timestamp is t as lexicons write times.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
