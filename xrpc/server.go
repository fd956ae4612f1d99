package xrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/lexicon"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/websocket"

	"spindle/internal/clock"
	"spindle/lexicons"
)

// Server answers calls and streams. Make it with New; mount Handler; Close it after the HTTP server has
// stopped listening.
type Server struct {
	c        Config
	clock    clock.Clock
	log      *slog.Logger
	m        *metrics
	catalog  lexicon.Catalog
	handler  http.Handler
	upgrader websocket.Upgrader

	addresses, callers, failures *buckets
	familiar                     *familiar
	slots                        *slots

	mu      sync.Mutex
	closing bool
	stop    chan struct{}
	streams sync.WaitGroup
}

// New checks c and makes a server. It starts nothing.
func New(c Config) (*Server, error) {
	for name, part := range map[string]any{
		"Pipelines": c.Pipelines, "Repos": c.Repos, "Policy": c.Policy, "Verbs": c.Verbs, "Retries": c.Retries,
		"Definitions": c.Definitions, "Secrets": c.Secrets, "Logs": c.Logs, "Ingest": c.Ingest,
		"Tokens": c.Tokens, "Knots": c.Knots,
	} {
		if part == nil {
			return nil, fmt.Errorf("xrpc: %s is missing", name)
		}
	}
	if err := c.Limits.fill(); err != nil {
		return nil, err
	}
	s := &Server{c: c, clock: c.Clock, log: c.Log, stop: make(chan struct{})}
	if s.clock == nil {
		s.clock = clock.Real{}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.m, err = newMetrics(c.Metrics); err != nil {
		return nil, err
	}
	if s.catalog, err = lexicons.NewCatalog(); err != nil {
		return nil, err
	}
	l := c.Limits
	if s.addresses, err = newBuckets(s.clock, l.PerAddress, l.AddressBurst, l.Remembered); err != nil {
		return nil, fmt.Errorf("xrpc: %w", err)
	}
	if s.callers, err = newBuckets(s.clock, l.PerCaller, l.CallerBurst, l.Remembered); err != nil {
		return nil, fmt.Errorf("xrpc: %w", err)
	}
	if s.failures, err = newBuckets(s.clock, float64(l.Failures)/60, l.Failures, l.Remembered); err != nil {
		return nil, fmt.Errorf("xrpc: %w", err)
	}
	if s.familiar, err = newFamiliar(l.Remembered); err != nil {
		return nil, fmt.Errorf("xrpc: %w", err)
	}
	s.slots = newSlots(l.Streams, l.StreamsPerAddress)
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: l.Write,
		WriteBufferSize:  16 << 10,
		ReadBufferSize:   1 << 10,
		CheckOrigin:      s.originAllowed,
		Error:            s.refuseUpgrade,
	}
	s.handler = s.routes()
	return s, nil
}

// fill puts the defaults in the place of zeros.
func (l *Limits) fill() error {
	for _, f := range []struct {
		v   *float64
		def float64
	}{{&l.PerAddress, 20}, {&l.PerCaller, 10}} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 0 {
			return errNegative
		}
	}
	for _, n := range []struct {
		v   *int
		def int
	}{
		{&l.AddressBurst, 100}, {&l.CallerBurst, 50}, {&l.Failures, 30}, {&l.Remembered, 16384},
		{&l.Streams, 512}, {&l.StreamsPerAddress, 16}, {&l.Page, 256},
	} {
		if *n.v == 0 {
			*n.v = n.def
		}
		if *n.v < 0 {
			return errNegative
		}
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&l.Ping, 30 * time.Second}, {&l.Write, 10 * time.Second}, {&l.Call, 30 * time.Second}} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 0 {
			return errNegative
		}
	}
	return nil
}

var errNegative = errors.New("xrpc: a limit is negative")

// Handler serves the calls, the streams and the documents. What it does not know is MethodNotImplemented
// below /xrpc/ and not found elsewhere.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends every stream with a close frame and waits until they are gone, or until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.stop)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.streams.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("xrpc: streams are still open: %w", ctx.Err())
	}
}

// enter counts a stream in, unless the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.streams.Add(1)
	return true
}

// routes is the whole surface, one line each.
func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(s.recovered, s.cors)
	for _, c := range []call{
		s.queryPipelines(), s.getPipeline(), s.cancelPipeline(), s.retryPipeline(), s.approvePipeline(),
		s.listWorkflowDefinitions(), s.getWorkflowDefinition(),
		s.putSecret(), s.listSecrets(), s.deleteSecret(),
		s.notifyEvent(),
		s.oldOwner(), s.oldAddSecret(), s.oldListSecrets(), s.oldRemoveSecret(),
	} {
		r.Handle("/xrpc/"+c.nsid, s.serve(c))
	}
	r.Handle("/xrpc/"+subscribeLogsNSID, s.subscribePipelineLogs())
	r.Handle("/xrpc/*", s.serve(call{nsid: unknownMethod}))
	r.Handle("/events", s.oldEvents())
	r.Handle("/logs/{knot}/{rkey}/{name}", s.oldLogs())
	r.Get("/_health", s.health)
	r.Get("/_ready", s.ready)
	for _, d := range s.c.Documents {
		r.Get(d.Path, s.document(d))
	}
	return r
}
