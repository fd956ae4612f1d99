package ingest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"spindle/store"
)

const (
	// batchMost bounds what one transaction takes from a stream, and how much may wait for the one before.
	batchMost = 2048
	// maxAhead is how far ahead of our clock a stream's time may be and still move the cursor. A cursor never
	// goes back, so one frame from the far future would otherwise leave every later gap unread.
	maxAhead = 5 * time.Minute
	// gather is the least time between two transactions of a stream.
	gather = 8 * time.Millisecond
	// idleSave is how often the cursor is saved while nothing of ours comes by.
	idleSave = time.Second
	// stillPings is how many pings a host must answer without a frame between them to count as quiet.
	stillPings = 15
	// idleMargin is how far behind the present the cursor of a host of times stays that has been quiet this long.
	idleMargin = 5 * time.Minute
)

// reader takes what one host tells and commits its hints and cursor in batches. The source's goroutine takes, another
// one commits.
type reader struct {
	in *Ingest
	e  Endpoint

	// last is the highest credible position that was taken, or 0. It is moved after the hints that it covers are in
	// waiting, and read before they are taken out. Until the process ends it is as good as the stored cursor: what
	// was taken is written, however long that takes.
	last  atomic.Int64
	saved int64     // the position that was last written; only the committer's
	asked time.Time // when the committer was last woken for the cursor alone; only the source's

	told          atomic.Int64 // frames taken
	before, still int64        // what told was at the last ping, and for how many pings; only the pinger's

	mu      sync.Mutex
	waiting []store.Recheck
	seen    map[store.Recheck]struct{}
	room    chan struct{} // closed when waiting was taken out

	wake    chan struct{} // has room for one
	writing sync.Mutex    // held over taking out and writing: a cursor that is reset is not written again
}

func newReader(in *Ingest, e Endpoint) *reader {
	return &reader{
		in: in, e: e, seen: map[store.Recheck]struct{}{}, room: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// Follow reads the record streams at endpoints, one at a time, until ctx ends. endpoints is a list with commas, the
// preferred one first; see ParseEndpoints.
func (in *Ingest) Follow(ctx context.Context, endpoints string) error {
	es, err := ParseEndpoints(endpoints)
	if err != nil {
		return fmt.Errorf("record streams: %w", err)
	}
	readers := make(map[string]*reader, len(es))
	key := func(e Endpoint) string { return e.protocol.name + " " + e.Host() }
	var committing sync.WaitGroup
	defer committing.Wait()
	for _, e := range es {
		r := newReader(in, e)
		readers[key(e)] = r
		committing.Go(func() { r.commit(ctx) })
	}
	c := SourceConfig{
		Endpoints: es, Collections: Collections(), Dial: in.c.Dial, Clock: in.c.Clock, Log: in.c.Log,
		Sink:   func(ctx context.Context, e Endpoint, f Frame) error { return readers[key(e)].sink(ctx, f) },
		Cursor: func(ctx context.Context, e Endpoint) (Position, error) { return readers[key(e)].cursor(ctx) },
		Missed: func(ctx context.Context, e Endpoint, m Missed) error { return readers[key(e)].missed(ctx, m) },
		Quiet:  func(e Endpoint) { readers[key(e)].quiet() },
		State:  in.state,
		Bad:    func() { in.c.Count("record_bad_frame") },
	}
	if in.c.OnlyFollowed {
		c.Wanted = in.wanted
	}
	return NewSource(c).Run(ctx)
}

func (r *reader) cursor(ctx context.Context) (Position, error) {
	c, ok, err := r.in.c.Store.Cursor(ctx, r.e.protocol.source, r.e.Host(), r.e.protocol.name)
	r.still = 0 // it is asked before each connection
	p := Position{Value: c.Value, Known: ok, At: c.UpdatedAt}
	if last := r.last.Load(); last > p.Value {
		p = Position{Value: last, Known: true, At: r.in.c.Clock.Now()}
	}
	return p, err
}

// at is the row of a cursor at position.
func (r *reader) at(position int64) *store.Cursor {
	return &store.Cursor{Source: r.e.protocol.source, Host: r.e.Host(), Protocol: r.e.protocol.name, Value: position}
}

// sink takes one frame.
func (r *reader) sink(ctx context.Context, f Frame) error {
	now := r.in.c.Clock.Now()
	r.told.Add(1)
	r.in.stats.heard(f, now)
	hints := r.in.hints(ctx, f)
	if len(hints) > 0 {
		r.in.stats.kept.Add(int64(len(hints)))
		if f.proof != nil {
			r.in.proofs.put(f, now)
		}
		if err := r.put(ctx, hints); err != nil {
			return err
		}
	}
	switch {
	case f.Pos <= r.last.Load():
		// One that comes late is covered by the rewind, and the cursor never goes back.
	case r.e.protocol.numbered || f.Pos <= now.Add(maxAhead).UnixMicro():
		r.last.Store(f.Pos)
	default:
		r.in.c.Count("record_future_frame")
	}
	if len(hints) > 0 || now.Sub(r.asked) >= idleSave {
		r.asked = now
		r.ring()
	}
	return nil
}

// put adds hints to what waits, once each, and waits itself while too much does.
func (r *reader) put(ctx context.Context, hints []store.Recheck) error {
	for {
		r.mu.Lock()
		if len(r.waiting) < batchMost {
			break
		}
		room := r.room
		r.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer r.mu.Unlock()
	for _, h := range hints {
		if _, ok := r.seen[h]; !ok {
			r.seen[h] = struct{}{}
			r.waiting = append(r.waiting, h)
		}
	}
	return nil
}

// take takes out what waits, and the position that it is covered by.
func (r *reader) take() (hints []store.Recheck, last int64) {
	last = r.last.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	hints, r.waiting = r.waiting, nil
	clear(r.seen)
	if len(hints) > 0 {
		close(r.room)
		r.room = make(chan struct{})
	}
	return hints, last
}

func (r *reader) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// quiet is told with every ping of a connection that lives. It moves the cursor of a host of times that has told nothing
// for long: nothing happened until then, and the host numbers what it will tell by its own clock when it hears of it.
func (r *reader) quiet() {
	n := r.told.Load()
	if n != r.before {
		r.before, r.still = n, 0
	} else {
		r.still++
	}
	now := r.in.c.Clock.Now()
	last := r.last.Load()
	if !r.e.protocol.numbered && last > 0 && r.still >= stillPings && now.Sub(time.UnixMicro(last)) > 2*idleMargin {
		r.last.CompareAndSwap(last, now.Add(-idleMargin).UnixMicro())
	}
	r.ring()
}

// commit writes what was taken, as much at a time as is there, in one transaction. What is left at the end of ctx is
// written before it returns, if the store takes it.
func (r *reader) commit(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := r.write(end, false); err != nil {
				r.in.c.Log.Warn("the last of a record stream is not written and will be read again", "err", err)
			}
			return
		case <-r.wake:
		}
		if r.write(ctx, true) != nil {
			return // what was taken out is not written, so nothing after it may be
		}
		// What comes while a stream is busy shares a transaction; the first after a pause waits for nothing.
		if r.in.c.Clock.Sleep(ctx, gather) != nil {
			continue
		}
	}
}

// write writes one batch. With again it tries until it is written, or ctx ends: a frame that is not written must not
// be passed over.
func (r *reader) write(ctx context.Context, again bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	hints, last := r.take()
	if len(hints) == 0 && last <= r.saved {
		return nil
	}
	e := store.Effects{Rechecks: hints}
	if last > r.saved {
		e.Cursor = r.at(last)
	}
	if err := r.accept(ctx, e, again); err != nil {
		return err
	}
	r.saved = max(r.saved, last)
	if len(hints) > 0 {
		r.in.wakeProvers()
	}
	return nil
}

func (r *reader) accept(ctx context.Context, e store.Effects, again bool) error {
	for {
		_, err := r.in.c.Store.Accept(ctx, e)
		if err == nil || !again {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.in.c.Log.Error("write hints and cursor", "hints", len(e.Rechecks), "err", err)
		if err := r.in.c.Clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// missed writes down that a stretch was not told. What was told before is written first, as the numbers may not mean
// the same afterwards.
func (r *reader) missed(ctx context.Context, m Missed) error {
	if err := r.write(ctx, true); err != nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	e := store.Effects{Gap: &store.Gap{
		Source: r.e.protocol.source, Host: r.e.Host(), Protocol: r.e.protocol.name, Reason: m.Reason, From: m.From, To: m.To,
	}}
	switch {
	case m.Reset:
		e.Cursor = r.at(m.To)
		e.Cursor.Reset = true
	case m.From == 0 && m.To > 0: // the first reading begins there
		e.Cursor = r.at(m.To)
	}
	if err := r.accept(ctx, e, true); err != nil {
		return err
	}
	if m.Reset {
		r.last.Store(m.To)
		r.saved = m.To
	}
	r.in.c.Count("record_gap")
	r.in.wakeCatchUp()
	return nil
}
