package queue

import (
	"context"
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
	// Renew extends a lease and tells who, if anyone, asked for its end. store.ErrStale: the lease is lost.
	Renew(ctx context.Context, l pipeline.Lease, ttl time.Duration) (cancelBy string, until time.Time, err error)
	// Changes and Changed tell of changes; see package feed.
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	LastChange(ctx context.Context) (int64, error)
	Changed() <-chan struct{}
}

// Executor takes one claimed workflow to its end. It reports every fact to the store itself and returns
// when nothing of the attempt is left. It ends early when ctx does, whose cause may be a *pipeline.Stop.
// It does not panic.
type Executor interface {
	Execute(ctx context.Context, c *store.Claimed)
}

// Config is what a Dispatcher needs.
type Config struct {
	// Jobs, Executor, Clock and Log are required.
	Jobs     Jobs
	Executor Executor
	Clock    clock.Clock
	Log      *slog.Logger
	// Holder names this process in leases. It is required; recovery after a restart goes by it.
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

	mu    sync.Mutex
	seats map[*seat]struct{}
	// claiming is set while a claim is on its way, and missed once a change that may concern its workflow came by
	// meanwhile: the seat that the claim gets is then poked at once, so that no cancel falls into the gap.
	claiming, missed bool
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
	return &Dispatcher{c: c, seats: map[*seat]struct{}{}}
}

// Running is how many seats are taken.
func (d *Dispatcher) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seats)
}

// String says what the dispatcher offers, for logs.
func (d *Dispatcher) String() string {
	return fmt.Sprintf("%d seats, engines %v, labels %v", d.c.Seats, d.c.Engines, d.c.Labels)
}

// Run claims and executes until ctx ends, then drains. It returns when every executor has returned; its
// error is always nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Executors outlive ctx for the drain, so they hang from a context of their own.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	after, ok := d.firstChange(ctx)
	if !ok {
		return nil
	}
	watch, endWatch := context.WithCancel(work)
	var watcher, running sync.WaitGroup
	watcher.Go(func() { d.watchCancels(watch, after) })
	d.fill(ctx, work, &running)
	d.drain(work, stop, &running)
	endWatch()
	watcher.Wait()
	return nil
}

// fill claims work while a seat is free, until ctx ends. What it claims runs under work.
func (d *Dispatcher) fill(ctx, work context.Context, running *sync.WaitGroup) {
	free := make(chan struct{}, d.c.Seats)
	for {
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}
		claimed, s := d.next(ctx)
		if claimed == nil {
			return
		}
		running.Go(func() {
			defer func() { <-free }()
			d.execute(work, claimed, s)
		})
	}
}

// drain waits for what runs, at most as long as the configuration says, and then stops it.
func (d *Dispatcher) drain(work context.Context, stop context.CancelCauseFunc, running *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	if d.c.Drain > 0 {
		d.wait(work, d.c.Drain, done)
	}
	stop(&pipeline.Stop{Kind: pipeline.StopDrain, By: "spindle"})
	<-done
}

// next waits for a claim and takes a seat for it; nil means that ctx ended.
func (d *Dispatcher) next(ctx context.Context) (*store.Claimed, *seat) {
	for ctx.Err() == nil {
		wake := d.c.Jobs.Changed()
		claimed, err := d.claim(ctx)
		if err != nil {
			d.c.Log.Error("claim work", "err", err)
		}
		if s := d.take(claimed); s != nil {
			return claimed, s
		}
		d.wait(ctx, d.c.Idle, wake)
	}
	return nil, nil
}

// claim asks for work. The end of ctx does not interrupt it: the lease might have been written already, and a
// lease that nobody knows of would block its workflow until it runs out.
func (d *Dispatcher) claim(ctx context.Context) (*store.Claimed, error) {
	d.mu.Lock()
	d.claiming, d.missed = true, false
	d.mu.Unlock()
	// An answer that comes when the lease is over is of no use.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.c.TTL)
	defer cancel()
	return d.c.Jobs.Claim(ctx, store.ClaimRequest{
		Holder: d.c.Holder, Engines: d.c.Engines, Labels: d.c.Labels, TTL: d.c.TTL, PerOwner: d.c.PerOwner,
	})
}

// wait returns once ctx ends, wake does, or dur has passed by the dispatcher's clock.
func (d *Dispatcher) wait(ctx context.Context, dur time.Duration, wake <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		_ = d.c.Clock.Sleep(ctx, dur) // ends early by cancel only, which is no fault
	}()
	select {
	case <-wake:
	case <-slept:
	}
	cancel()
	<-slept
}
