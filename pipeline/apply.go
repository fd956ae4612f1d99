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

// Fact is something that happened to a workflow. It is one of the types below, by value.
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
// The first wish counts: its By and Reason are those of the end that follows.
type CancelAsked struct {
	// By is the DID that asked, or "spindle". It is required, since it is what tells a runner to stop.
	By string
	// Reason is one sentence; empty becomes one that names By.
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

// Apply returns w after f, which happened at now. It changes nothing and reads no clock. When it refuses f
// it returns w as it was, with ErrEnded, ErrStale or ErrMove.
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
		return w, nil
	case Leased:
		return lease(w, f, now)
	case Began:
		if err := current(w, f.Epoch); err != nil {
			return w, err
		}
		w.Status = Running
		return w, nil
	case Finished:
		return finish(w, f, now)
	case CancelAsked:
		return cancel(w, f, now)
	case Lost:
		return lose(w, f, now)
	}
	return w, fmt.Errorf("%w: unknown fact %T", ErrMove, f)
}

func lease(w Workflow, f Leased, now time.Time) (Workflow, error) {
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
	return w, nil
}

func finish(w Workflow, f Finished, now time.Time) (Workflow, error) {
	if err := current(w, f.Epoch); err != nil {
		return w, err
	}
	if !f.Status.ends() {
		return w, fmt.Errorf("%w: finish as %q", ErrMove, f.Status)
	}
	reason := f.Reason
	switch {
	case w.CancelBy == "":
	case f.Status == Cancelled && w.Reason != "":
		// Who asked knows why better than the attempt that was told to stop.
		reason = w.Reason
	case f.Status == Passed && reason == "":
		reason = "it had passed before the wish of " + w.CancelBy + " to end it arrived"
	}
	w = end(w, f.Status, reason, now)
	w.ExitCode = f.ExitCode
	return w, nil
}

func cancel(w Workflow, f CancelAsked, now time.Time) (Workflow, error) {
	switch f.As {
	case Cancelled, Superseded, Refused, Expired:
	default:
		return w, fmt.Errorf("%w: cancel as %q", ErrMove, f.As)
	}
	if f.By == "" {
		return w, fmt.Errorf("%w: cancel by nobody", ErrMove)
	}
	if f.Reason == "" {
		f.Reason = string(f.As) + " by " + f.By
	}
	if w.CancelBy == "" {
		w.CancelBy, w.Reason = f.By, f.Reason
	}
	if w.Status.Active() {
		return w, nil
	}
	return end(w, f.As, f.Reason, now), nil
}

func lose(w Workflow, f Lost, now time.Time) (Workflow, error) {
	if err := current(w, f.Epoch); err != nil {
		return w, err
	}
	switch {
	case w.CancelBy != "":
		return end(w, Cancelled, w.Reason, now), nil
	case f.Again:
		w.Status, w.Reason, w.ReadyAt, w.LeaseUntil = Waiting, f.Reason, now, time.Time{}
		return w, nil
	}
	return end(w, Error, f.Reason, now), nil
}

// current refuses a fact of an attempt that is not the one that holds the lease now.
func current(w Workflow, epoch int64) error {
	if !w.Status.Active() || w.Epoch != epoch {
		return fmt.Errorf("%w: epoch %d, now %d and %s", ErrStale, epoch, w.Epoch, w.Status)
	}
	return nil
}

func end(w Workflow, s Status, reason string, now time.Time) Workflow {
	if reason == "" {
		reason = s.plain()
	}
	w.Status, w.Reason, w.FinishedAt, w.LeaseUntil = s, reason, now, time.Time{}
	return w
}

// plain is the reason of an end that nobody gave one for. What passed needs none.
func (s Status) plain() string {
	switch s {
	case Passed:
		return ""
	case Failed:
		return "a step did not pass"
	case Timeout:
		return "its time was up"
	case Error:
		return "the machinery had a fault; it is not your code"
	}
	return "it was ended before it was done"
}

// ends tells whether an attempt may end as s.
func (s Status) ends() bool {
	switch s {
	case Passed, Failed, Error, Timeout, Cancelled:
		return true
	}
	return false
}
