package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"spindle/internal/clock"
)

// SourceConfig is what a Source needs. Endpoints, Sink, Cursor, Missed, Clock and Log are required.
type SourceConfig struct {
	// Endpoints are the hosts that may be read, the preferred one first. One is read at a time.
	Endpoints []Endpoint
	// Collections are asked for, where the protocol knows a filter; the host then sends no commits of others.
	Collections []string
	// Wanted lists, in order, the accounts to ask for; changed is closed when the list may be another. Nil asks for
	// all accounts. Only version 1 of Jetstream takes a list on an open connection; what others tell of is sorted out
	// by the Sink.
	Wanted func(ctx context.Context) (dids []string, changed <-chan struct{}, err error)
	// Dial opens the connection: that of the guard.
	Dial dialFunc
	// Sink takes frames in order. It may block: then the socket's own flow control holds the host back.
	Sink func(ctx context.Context, e Endpoint, f Frame) error
	// Cursor is how far the host has been read. It is asked before every connection.
	Cursor func(ctx context.Context, e Endpoint) (Position, error)
	// Missed takes note of a stretch that was not told, so that it is not forgotten. The reading waits for it.
	Missed func(ctx context.Context, e Endpoint, m Missed) error
	// Quiet is told now and then of a connection that lives; may be nil.
	Quiet func(e Endpoint)
	// State is told of every change of the connection; may be nil.
	State func(e Endpoint, up bool, detail string)
	// Bad is told of a frame that could not be read and was passed over; may be nil.
	Bad   func()
	Clock clock.Clock
	Log   *slog.Logger
	// Ping is how often to ping; 0 means 20 s. A connection without any sign of life for three pings is closed.
	Ping time.Duration
}

// Position is how far a host has been read.
type Position struct {
	// Value is the cursor; Known is false for a host that was never read.
	Value int64
	Known bool
	// At is when it was last moved.
	At time.Time
}

// Missed is a stretch of a stream that was not told.
type Missed struct {
	// From and To are in the protocol's own numbers; 0 is unknown.
	From, To int64
	// Reason is one of the sentences below.
	Reason string
	// Reset tells that the host no longer counts as it did: the cursor is forgotten and begins at To.
	Reset bool
}

// Why something was missed.
const (
	reasonFresh   = "this host was never read before"
	reasonOld     = "the cursor is older than hosts keep events"
	reasonClamped = "the host begins later than it was asked to"
	reasonRefused = "the host no longer has what the cursor points at"
	reasonFuture  = "the cursor lies in the host's future"
	reasonBack    = "the host counts from an earlier position than the cursor"
)

// Source reads record streams for ever, one host at a time. Make it with NewSource and call Run once.
type Source struct {
	c SourceConfig
	// heard is when a connection was last open, by our own clock: a host without a cursor is read from then on.
	heard time.Time
	// why is for what reason the last connection left no cursor behind.
	why string
}

// NewSource returns a source.
func NewSource(c SourceConfig) *Source {
	if c.Ping <= 0 {
		c.Ping = 20 * time.Second
	}
	if c.State == nil {
		c.State = func(Endpoint, bool, string) {}
	}
	if c.Bad == nil {
		c.Bad = func() {}
	}
	if c.Quiet == nil {
		c.Quiet = func(Endpoint) {}
	}
	return &Source{c: c}
}

const (
	// Back-off between connections: the first wait and the longest.
	firstWait = 500 * time.Millisecond
	mostWait  = time.Minute
	// strikes is how many connections in a row may fail before the next host is tried.
	strikes = 3
	// A preferred host that lets us in this often in a row, with this wait between, is gone back to.
	probes     = 5
	probeEvery = time.Minute
	// badInARow is how many unreadable messages in a row mean that the host does not speak what we understand.
	badInARow = 100
)

// errReturn ends a connection because the preferred host is well again.
var errReturn = errors.New("the preferred host is well again")

// track is what is remembered of one host between its connections.
type track struct {
	bare    bool  // the next connection begins at the cursor itself
	from    int64 // the cursor that the last one began with
	strikes int
}

// Run connects and reads until ctx ends. A connection that brought a frame, or lived for a minute, resets the back-off:
// after it the wait is the first step again.
func (s *Source) Run(ctx context.Context) error {
	tracks := make([]track, len(s.c.Endpoints))
	wait, at := firstWait, 0
	// A reading without a cursor begins when it was begun, and not when the host has let it in: whoever chooses the
	// server as soon as it answers may be told of before that, or between two connections.
	s.heard = s.c.Clock.Now()
	for ctx.Err() == nil {
		e, tr := s.c.Endpoints[at], &tracks[at]
		began := s.c.Clock.Now()
		got, err := s.visit(ctx, e, at > 0, tr.bare)
		if ctx.Err() != nil {
			break
		}
		now := s.c.Clock.Now()
		if errors.Is(err, errReturn) {
			s.c.Log.Info("back to the preferred record stream", "host", s.c.Endpoints[0].Host())
			at, tracks[0] = 0, track{strikes: strikes - 1}
			continue
		}
		if got.last > 0 || now.Sub(began) > time.Minute {
			wait, tr.strikes = firstWait, 0
		} else {
			tr.strikes++
		}
		old := !e.protocol.numbered && now.Sub(time.UnixMicro(got.last)) > catchingUp
		tr.bare = got.last > 0 && (old || got.from == tr.from)
		tr.from = got.from
		s.c.State(e, false, fmt.Sprint(err))
		// Half fixed, half random: hosts that come back are not met by everybody at once.
		d := wait/2 + rand.N(wait/2)
		s.c.Log.Warn("record stream ended", "host", e.Host(), "protocol", e.protocol.name, "err", err, "again_in", d)
		if len(s.c.Endpoints) > 1 && tr.strikes >= strikes {
			tr.strikes = 0
			at = (at + 1) % len(s.c.Endpoints)
			s.c.Log.Warn("another record stream is tried", "host", s.c.Endpoints[at].Host())
		}
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

// visit reads one connection to its end. On a host that is not the preferred one it looks after that one meanwhile.
func (s *Source) visit(ctx context.Context, e Endpoint, away, bare bool) (progress, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var probing sync.WaitGroup
	if away {
		probing.Go(func() { s.probe(ctx, cancel) })
	}
	got, err := s.once(ctx, e, bare)
	cancel(nil)
	probing.Wait()
	if errors.Is(context.Cause(ctx), errReturn) {
		err = errReturn
	}
	return got, err
}

// probe ends the connection once the preferred host has let us in often enough.
func (s *Source) probe(ctx context.Context, cancel context.CancelCauseFunc) {
	e := s.c.Endpoints[0]
	for well := 0; well < probes; {
		if s.c.Clock.Sleep(ctx, probeEvery) != nil {
			return
		}
		ws, err := open(ctx, e.address(0, s.c.Collections, true), s.c.Dial)
		if err != nil {
			well = 0
			continue
		}
		_ = ws.Close() // it was only a question
		well++
	}
	cancel(errReturn)
}
