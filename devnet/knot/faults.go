package knot

import (
	"context"
	"slices"
	"time"
)

// Faults is how the knot misbehaves when it tells spindles of pushes. The zero value is an honest knot.
type Faults struct {
	// Drop says which pushes the spindle is never told of. It is called from many goroutines.
	Drop func(Push) bool
	// Duplicate is how many times more each notice is sent, each with a token of its own.
	Duplicate int
	// Delay is the wait before a notice is sent; the push does not wait and shows no answer.
	Delay time.Duration
	// BadSignature signs the tokens with a key that is not the repository's.
	BadSignature bool
	// Hold keeps notices until Release, which can send them in another order.
	Hold bool
}

// SetFaults replaces the faults. Notices that are held stay held.
func (k *Knot) SetFaults(f Faults) {
	k.notify.mu.Lock()
	defer k.notify.mu.Unlock()
	k.notify.faults = f
}

// fault notes what is to happen with p; false: nothing is sent now.
func (n *notifier) fault(p Push) (Faults, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.faults
	if f.Drop != nil && f.Drop(p) {
		return f, false
	}
	if f.Hold {
		n.held = append(n.held, p)
		return f, false
	}
	return f, true
}

// Release sends the notices that Hold kept, in the order of the pushes or the other way round, one after
// the other, and returns the answers. Hold is lifted.
func (k *Knot) Release(ctx context.Context, reverse bool) ([]Answer, error) {
	n := k.notify
	n.mu.Lock()
	held := n.held
	n.held = nil
	n.faults.Hold = false
	f := n.faults
	n.mu.Unlock()
	if reverse {
		slices.Reverse(held)
	}
	var out []Answer
	for _, p := range held {
		a, err := n.deliver(ctx, p, f)
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Call sends c as it is, however wrong, once.
func (k *Knot) Call(ctx context.Context, c Call) (Answer, error) { return k.notify.call(ctx, c) }

// Wake calls again at once every spindle that a notice waits for.
func (k *Knot) Wake() { k.notify.wake() }

// Pending is how many notices are not settled yet.
func (k *Knot) Pending() int {
	k.notify.mu.Lock()
	defer k.notify.mu.Unlock()
	return k.notify.pending
}
