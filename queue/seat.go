package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"spindle/pipeline"
	"spindle/store"
)

// seat is one attempt that runs here.
type seat struct {
	lease pipeline.Lease
	// poke asks the keeper to renew now; it has room for one.
	poke chan struct{}
}

// take gives a seat to what was claimed and ends the claim; nil for nil.
func (d *Dispatcher) take(c *store.Claimed) *seat {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claiming = false
	if c == nil {
		return nil
	}
	s := &seat{lease: c.Lease, poke: make(chan struct{}, 1)}
	if d.missed {
		s.poke <- struct{}{}
	}
	d.seats[s] = struct{}{}
	return s
}

func (d *Dispatcher) leave(s *seat) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.seats, s)
}

// execute runs c to its end while a keeper renews its lease.
func (d *Dispatcher) execute(ctx context.Context, c *store.Claimed, s *seat) {
	defer d.leave(s)
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The lease is needed until the last report, so it is kept beyond the end of run.
	keep, stopKeep := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { d.keep(keep, s, end) })
	d.c.Executor.Execute(run, c)
	stopKeep()
	keeper.Wait()
}

// keep renews the lease of s until ctx ends. When the lease is lost, or cannot be renewed before it runs out,
// it ends the executor: an attempt without a lease must not go on.
func (d *Dispatcher) keep(ctx context.Context, s *seat, end context.CancelCauseFunc) {
	until, pause := s.lease.Until, d.c.TTL/3
	for {
		d.wait(ctx, pause, s.poke)
		if ctx.Err() != nil {
			return
		}
		by, u, err := d.renew(ctx, s.lease)
		switch {
		case err == nil:
			until, pause = u, d.c.TTL/3
			if by != "" {
				end(&pipeline.Stop{Kind: pipeline.StopCancel, By: by})
			}
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrStale):
			end(&pipeline.Stop{Kind: pipeline.StopStale})
			return
		default:
			d.c.Log.Error("renew lease", "pipeline", s.lease.Pipeline, "workflow", s.lease.Workflow, "err", err)
			// A margin of a third keeps this end ahead of the moment at which others may take over.
			if d.c.Clock.Now().After(until.Add(-d.c.TTL / 3)) {
				end(&pipeline.Stop{Kind: pipeline.StopStale})
				return
			}
			pause = d.c.TTL / 15
		}
	}
}

// renew renews once, and gives up in time for another try.
func (d *Dispatcher) renew(ctx context.Context, l pipeline.Lease) (by string, until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.c.TTL/6)
	defer cancel()
	return d.c.Jobs.Renew(ctx, l, d.c.TTL)
}
