package pipeline

import (
	"errors"
	"fmt"
	"time"
)

// What Apply refuses.
var (
	// ErrStale is a fact of an attempt that no longer holds the lease.
	ErrStale = errors.New("pipeline: the attempt no longer holds the lease")
	// ErrEnded is a fact about a workflow that has already ended.
	ErrEnded = errors.New("pipeline: the workflow has ended")
	// ErrMove is a fact that does not follow from the workflow's status.
	ErrMove = errors.New("pipeline: that does not follow from the workflow's status")
)

// Fact is something that happened to a workflow. It is one of the types below.
type Fact interface{ fact() }

// Approved lets a held workflow start.
type Approved struct{ By string }

// Leased gives the next attempt to Holder until Until.
type Leased struct {
	Holder string
	Until  time.Time
}

// Began is the start of the first step.
type Began struct{ Epoch int64 }

// Finished is the end of the attempt with epoch Epoch. Status is one of Passed, Failed, Error, Timeout or
// Cancelled.
type Finished struct {
	Epoch    int64
	Status   Status
	ExitCode int
	Reason   string
}

// CancelAsked is a wish to end. What waits ends at once; what runs is told when it renews its lease.
type CancelAsked struct {
	By     string
	Reason string
	// As is Cancelled, Superseded, Refused or Expired; it matters for what is not yet running.
	As Status
}

// Lost is the loss of the attempt with epoch Epoch: its lease ran out or its machine restarted. With Again
// the workflow waits for another attempt; otherwise it ends as Error.
type Lost struct {
	Epoch  int64
	Reason string
	Again  bool
}

func (Approved) fact()    {}
func (Leased) fact()      {}
func (Began) fact()       {}
func (Finished) fact()    {}
func (CancelAsked) fact() {}
func (Lost) fact()        {}

// Apply returns w after f, which happened at now. It changes nothing and reads no clock.
func Apply(w Workflow, f Fact, now time.Time) (Workflow, error) {
	if w.Status.Terminal() {
		return w, fmt.Errorf("%w as %s", ErrEnded, w.Status)
	}
	switch f := f.(type) {
	case Approved:
		if w.Status != Held {
			return w, fmt.Errorf("%w: approve while %s", ErrMove, w.Status)
		}
		w.Status, w.Reason, w.ReadyAt = Waiting, "", now
	case Leased:
		if w.Status != Waiting {
			return w, fmt.Errorf("%w: lease while %s", ErrMove, w.Status)
		}
		w.Status, w.Reason = Preparing, ""
		w.Attempt++
		w.Epoch++
		w.LeaseUntil = f.Until
		if w.StartedAt.IsZero() {
			w.StartedAt = now
		}
	case Began:
		if err := current(w, f.Epoch); err != nil {
			return w, err
		}
		w.Status = Running
	case Finished:
		if err := current(w, f.Epoch); err != nil {
			return w, err
		}
		if !f.Status.ends() {
			return w, fmt.Errorf("%w: finish as %q", ErrMove, f.Status)
		}
		w = end(w, f.Status, f.Reason, now)
		w.ExitCode = f.ExitCode
	case CancelAsked:
		return cancel(w, f, now)
	case Lost:
		if err := current(w, f.Epoch); err != nil {
			return w, err
		}
		switch {
		case w.CancelBy != "":
			w = end(w, Cancelled, w.Reason, now)
		case f.Again:
			w.Status, w.Reason, w.ReadyAt, w.LeaseUntil = Waiting, f.Reason, now, time.Time{}
		default:
			w = end(w, Error, f.Reason, now)
		}
	default:
		return w, fmt.Errorf("%w: unknown fact %T", ErrMove, f)
	}
	return w, nil
}

func cancel(w Workflow, f CancelAsked, now time.Time) (Workflow, error) {
	switch f.As {
	case Cancelled, Superseded, Refused, Expired:
	default:
		return w, fmt.Errorf("%w: cancel as %q", ErrMove, f.As)
	}
	if w.CancelBy == "" {
		w.CancelBy, w.Reason = f.By, f.Reason
	}
	if w.Status.Active() {
		return w, nil
	}
	return end(w, f.As, f.Reason, now), nil
}

func current(w Workflow, epoch int64) error {
	if !w.Status.Active() || w.Epoch != epoch {
		return fmt.Errorf("%w: epoch %d, now %d and %s", ErrStale, epoch, w.Epoch, w.Status)
	}
	return nil
}

func end(w Workflow, s Status, reason string, now time.Time) Workflow {
	w.Status, w.Reason, w.FinishedAt, w.LeaseUntil = s, reason, now, time.Time{}
	return w
}

// ends tells whether an attempt may end as s.
func (s Status) ends() bool {
	switch s {
	case Passed, Failed, Error, Timeout, Cancelled:
		return true
	}
	return false
}
