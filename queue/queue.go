package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/store"
)

// Jobs is where work comes from: the store.
type Jobs interface {
	// Claim leases the next workflow that fits, or returns nil when there is none.
	Claim(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error)
	// Renew extends a lease and tells who, if anyone, asked for its end.
	Renew(ctx context.Context, l pipeline.Lease, ttl time.Duration) (cancelBy string, until time.Time, err error)
	// Changes and Changed tell of changes; see package feed.
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	LastChange(ctx context.Context) (int64, error)
	Changed() <-chan struct{}
}

// Executor takes one claimed workflow to its end. It reports every fact to the store itself and returns
// when nothing of the attempt is left. It ends early when ctx does, whose cause may be a *pipeline.Stop.
type Executor interface {
	Execute(ctx context.Context, c *store.Claimed)
}

// Config is what a Dispatcher needs.
type Config struct {
	Jobs     Jobs
	Executor Executor
	Clock    clock.Clock
	Log      *slog.Logger
	// Holder names this process in leases.
	Holder string
	// Engines and Labels are what this process offers.
	Engines []string
	Labels  []string
	// Seats is how many workflows run at a time; below 1 means 2.
	Seats int
	// PerOwner caps the running workflows of one owner; 0 means no cap.
	PerOwner int
	// TTL is how long a lease lasts without renewal; 0 means 60 s. It is renewed at a third of that.
	TTL time.Duration
	// Idle is how often to look for work without being woken; 0 means 5 s.
	Idle time.Duration
	// Drain is how long running workflows may go on after Run's context ends; then they are stopped
	// with StopDrain. 0 stops them at once.
	Drain time.Duration
}

// Dispatcher fills the seats of one process. Make it with New and call Run once.
type Dispatcher struct {
	c Config

	mu   sync.Mutex
	held map[heldKey]*held
}

type heldKey struct {
	pipeline pipeline.ID
	workflow string
}

type held struct {
	lease pipeline.Lease
	end   context.CancelCauseFunc
	// poke asks the keeper to renew now; it has room for one.
	poke chan struct{}
}

// New returns a dispatcher.
func New(c Config) *Dispatcher {
	if c.Seats < 1 {
		c.Seats = 2
	}
	if c.TTL <= 0 {
		c.TTL = time.Minute
	}
	if c.Idle <= 0 {
		c.Idle = 5 * time.Second
	}
	return &Dispatcher{c: c, held: map[heldKey]*held{}}
}

// Running is how many seats are taken.
func (d *Dispatcher) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held)
}

// Run claims and executes until ctx ends, then drains. It returns when every executor has returned.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Executors outlive ctx for the drain, so they hang from a context of their own.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var wg sync.WaitGroup
	watch, endWatch := context.WithCancel(work)
	defer endWatch()
	var watcher sync.WaitGroup
	watcher.Go(func() { d.watchCancels(watch) })

	seats := make(chan struct{}, d.c.Seats)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case seats <- struct{}{}:
		}
		claimed := d.next(ctx)
		if claimed == nil {
			<-seats
			continue
		}
		wg.Go(func() {
			defer func() { <-seats }()
			d.execute(work, claimed)
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	if d.c.Drain > 0 {
		drain, cancel := context.WithTimeout(work, d.c.Drain)
		select {
		case <-done:
		case <-drain.Done():
		}
		cancel()
	}
	stop(&pipeline.Stop{Kind: pipeline.StopDrain, By: "spindle", Reason: "the spindle is stopping"})
	<-done
	endWatch()
	watcher.Wait()
	return nil
}

// next waits for a claim; nil means that ctx ended.
func (d *Dispatcher) next(ctx context.Context) *store.Claimed {
	for ctx.Err() == nil {
		wake := d.c.Jobs.Changed()
		claimed, err := d.c.Jobs.Claim(ctx, store.ClaimRequest{
			Holder: d.c.Holder, Engines: d.c.Engines, Labels: d.c.Labels, TTL: d.c.TTL, PerOwner: d.c.PerOwner,
		})
		switch {
		case err != nil:
			if ctx.Err() == nil {
				d.c.Log.Error("claim work", "err", err)
			}
		case claimed != nil:
			return claimed
		}
		idle, cancel := context.WithTimeout(ctx, d.c.Idle)
		select {
		case <-wake:
		case <-idle.Done():
		}
		cancel()
	}
	return nil
}

func (d *Dispatcher) execute(ctx context.Context, c *store.Claimed) {
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	h := &held{lease: c.Lease, end: end, poke: make(chan struct{}, 1)}
	k := heldKey{c.Lease.Pipeline, c.Lease.Workflow}
	d.mu.Lock()
	d.held[k] = h
	d.mu.Unlock()
	var keeper sync.WaitGroup
	keep, stopKeep := context.WithCancel(context.WithoutCancel(ctx))
	keeper.Go(func() { d.keep(keep, h) })
	d.c.Executor.Execute(run, c)
	stopKeep()
	keeper.Wait()
	d.mu.Lock()
	delete(d.held, k)
	d.mu.Unlock()
}

// keep renews h's lease until ctx ends. When the lease is lost, or cannot be renewed before it runs out,
// it ends the executor: an attempt without a lease must not go on.
func (d *Dispatcher) keep(ctx context.Context, h *held) {
	until := h.lease.Until
	for {
		wait, cancel := context.WithTimeout(ctx, d.c.TTL/3)
		select {
		case <-h.poke:
		case <-wait.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		by, u, err := d.c.Jobs.Renew(ctx, h.lease, d.c.TTL)
		switch {
		case err == nil && by != "":
			h.end(&pipeline.Stop{Kind: pipeline.StopCancel, By: by})
			until = u
		case err == nil:
			until = u
		case errors.Is(err, store.ErrStale):
			h.end(&pipeline.Stop{Kind: pipeline.StopStale})
			return
		case ctx.Err() != nil:
			return
		default:
			d.c.Log.Error("renew lease", "pipeline", h.lease.Pipeline, "workflow", h.lease.Workflow, "err", err)
			// A margin of a third keeps this end ahead of the moment at which others may take over.
			if d.c.Clock.Now().After(until.Add(-d.c.TTL / 3)) {
				h.end(&pipeline.Stop{Kind: pipeline.StopStale})
				return
			}
		}
	}
}

// watchCancels makes a cancel take effect at once: it reads the change feed and renews the leases that a
// change speaks of. Without it a cancel would wait for the next renewal.
func (d *Dispatcher) watchCancels(ctx context.Context) {
	after, err := d.c.Jobs.LastChange(ctx)
	if err != nil {
		d.c.Log.Error("read the change feed", "err", err)
	}
	for ctx.Err() == nil {
		wake := d.c.Jobs.Changed()
		cs, err := d.c.Jobs.Changes(ctx, after, 500)
		if err != nil && ctx.Err() == nil {
			d.c.Log.Error("read the change feed", "after", after, "err", err)
		}
		for _, c := range cs {
			after = c.Number
			// A change of a step or of a status is the executor's own; a cancel leaves a reason behind.
			if c.Workflow != "" && c.Step < 0 && c.Reason != "" {
				d.poke(heldKey{c.Pipeline, c.Workflow})
			}
		}
		if len(cs) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-wake:
		}
	}
}

func (d *Dispatcher) poke(k heldKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, ok := d.held[k]
	if !ok {
		return
	}
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// String says what the dispatcher offers, for logs.
func (d *Dispatcher) String() string {
	return fmt.Sprintf("%d seats, engines %v, labels %v", d.c.Seats, d.c.Engines, d.c.Labels)
}
