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

// Approved lets a held workflow pass the gate that it is held at. Hold is how long a person may take at the next one.
type Approved struct {
	By   string
	Hold time.Duration
}

// Decided is what comes of a workflow once all that it waited for has ended: with Run it goes on, otherwise it ends as
// As, which is Skipped, or Error when it could not be decided. Hold is as for Approved.
type Decided struct {
	Run    bool
	As     Status
	Reason string
	Hold   time.Duration
}

// Remains names what a workflow that waits for others still waits for.
type Remains struct{ WaitsFor []string }

// Blocked lets a workflow that a runner might take wait for another one of its group; Freed ends that.
type Blocked struct{ Reason string }

// Freed lets a workflow that waited for another one of its group start.
type Freed struct{}

// Leased gives the next attempt to Holder until Until.
type Leased struct {
	Holder string
	Until  time.Time
}

// Began is the start of the first step.
type Began struct{ Epoch int64 }

// Finished is the end of the attempt with epoch Epoch. Status is one of Passed, Failed, Error, Timeout or
// Cancelled. With Again the workflow waits for another attempt, unless somebody asked for its end; Workflow.Repeats
// says when.
type Finished struct {
	Epoch    int64
	Status   Status
	ExitCode int
	Reason   string
	// Outputs are what the steps hand to the workflows that need this one. Whoever stores the fact stores them with it.
	Outputs map[string]string
	Again   bool
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
func (Decided) fact()     {}
func (Remains) fact()     {}
func (Blocked) fact()     {}
func (Freed) fact()       {}
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
		if w.Gate == GateApproval {
			return w.next(GateApproval, f.Hold, now), nil
		}
		return w.next(GateTrust, f.Hold, now), nil
	case Decided:
		return decide(w, f, now)
	case Remains, Blocked, Freed:
		return stay(w, f, now)
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
	if w.Status != Waiting || w.Gate != GateOpen {
		return w, fmt.Errorf("%w: lease while %s%s", ErrMove, w.Status, w.Gate.told())
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

func decide(w Workflow, f Decided, now time.Time) (Workflow, error) {
	switch {
	case w.Status != Waiting || w.Gate != GateNeeds:
		return w, fmt.Errorf("%w: decide while %s%s", ErrMove, w.Status, w.Gate.told())
	case f.Run:
		return w.next(GateNeeds, f.Hold, now), nil
	case f.As != Skipped && f.As != Error:
		return w, fmt.Errorf("%w: decide as %q", ErrMove, f.As)
	}
	return end(w, f.As, f.Reason, now), nil
}

// stay applies the facts that change only what a waiting workflow waits for.
func stay(w Workflow, f Fact, now time.Time) (Workflow, error) {
	before, after, reason, ready := GateNeeds, GateNeeds, "", w.ReadyAt
	switch f := f.(type) {
	case Remains:
		reason = WaitsFor(f.WaitsFor)
	case Blocked:
		before, after, reason = GateOpen, GateGroup, f.Reason
	case Freed:
		before, after, ready = GateGroup, GateOpen, now
	}
	if w.Status != Waiting || w.Gate != before {
		return w, fmt.Errorf("%w: %T while %s%s", ErrMove, f, w.Status, w.Gate.told())
	}
	w.Gate, w.Reason, w.ReadyAt = after, reason, ready
	return w, nil
}

// told is g for the text of an error.
func (g Gate) told() string {
	if g == GateOpen {
		return ""
	}
	return " at gate " + string(g)
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
	case w.CancelBy == "" && f.Again && faultOf(f.Status) != "":
		if reason == "" {
			reason = f.Status.plain()
		}
		w.Status, w.Reason, w.ReadyAt, w.LeaseUntil = Waiting, reason, now, time.Time{}
		return w, nil
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
	w.Status, w.Gate, w.Reason, w.FinishedAt, w.LeaseUntil, w.HeldUntil = s, GateOpen, reason, now, time.Time{}, time.Time{}
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
	case Skipped:
		return "what it needs did not pass"
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
