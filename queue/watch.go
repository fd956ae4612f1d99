package queue

import (
	"context"

	"spindle/pipeline"
)

// maxChanges is how many changes are read at a time.
const maxChanges = 500

// firstChange is where the watch for cancels begins: before the first claim, so that nothing claimed here
// can be cancelled unseen. It tries until it succeeds or ctx ends.
func (d *Dispatcher) firstChange(ctx context.Context) (int64, bool) {
	for ctx.Err() == nil {
		wake := d.c.Jobs.Changed()
		after, err := d.c.Jobs.LastChange(ctx)
		if err == nil {
			return after, true
		}
		if ctx.Err() == nil {
			d.c.Log.Error("read the change feed", "err", err)
			d.wait(ctx, d.c.Idle, wake)
		}
	}
	return 0, false
}

// watchCancels makes a cancel take effect at once: it reads the changes above after and renews the leases that
// a change speaks of. Without it a cancel would wait for the next renewal.
func (d *Dispatcher) watchCancels(ctx context.Context, after int64) {
	for ctx.Err() == nil {
		wake := d.c.Jobs.Changed()
		cs, err := d.c.Jobs.Changes(ctx, after, maxChanges)
		if err != nil && ctx.Err() == nil {
			d.c.Log.Error("read the change feed", "after", after, "err", err)
		}
		for _, c := range cs {
			after = c.Number
			// Most changes are the executors' own. A wish to cancel is one of a workflow that runs and, other
			// than theirs, has a reason.
			if c.Workflow != "" && c.Step < 0 && c.Reason != "" && c.Status.Active() {
				d.poke(c.Pipeline, c.Workflow)
			}
		}
		if len(cs) == 0 {
			d.wait(ctx, d.c.Idle, wake)
		}
	}
}

// poke has the leases of a workflow renewed now.
func (d *Dispatcher) poke(id pipeline.ID, workflow string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missed = d.missed || d.claiming
	for s := range d.seats {
		if s.lease.Pipeline != id || s.lease.Workflow != workflow {
			continue
		}
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
}
