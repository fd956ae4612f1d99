package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is an HTTP server on one address with a gate before it and its sockets at hand. Make it with
// Listen; Close ends and waits for everything it started.
type Server struct {
	// Gate takes the rules of this server.
	Gate Gate

	listener *Listener
	http     *http.Server
	cancel   context.CancelFunc
	handlers sync.WaitGroup // requests under way
	serving  sync.WaitGroup // the accept loop

	mu     sync.Mutex
	closed bool
}

// Listen opens addr ("127.0.0.1:0" picks a port); Serve starts answering.
func Listen(ctx context.Context, addr string) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return &Server{listener: NewListener(l)}, nil
}

// Serve answers with h until Close. It returns at once; call it no more than once. The context of each
// request ends with Close.
func (s *Server) Serve(ctx context.Context, h http.Handler, log *slog.Logger) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	gated := s.Gate.Wrap(h)
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !s.enter() {
				return
			}
			defer s.handlers.Done()
			gated.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.serving.Go(func() {
		if err := s.http.Serve(s.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("a server of the development network stopped", "addr", s.Addr(), "err", err)
		}
	})
}

// enter counts a request in, unless the server is closed: Close must not wait for a count that grows.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// Addr is "ip:port".
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is the origin, without a path.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Cut closes every open socket abruptly and says how many there were. New connections are welcome.
func (s *Server) Cut() int { return s.listener.Cut() }

// Close stops listening, ends every request and waits for all of them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.http == nil {
		return s.listener.Close()
	}
	s.cancel()
	err := s.http.Close()
	s.listener.Cut() // those taken over by a handler are not the http.Server's to close
	s.handlers.Wait()
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("close %s: %w", s.Addr(), err)
	}
	return nil
}
