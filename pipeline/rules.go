package pipeline

import (
	"slices"
	"time"
)

// Gate is what stands between a workflow and its start. A workflow passes its gates in the order of the constants,
// and those that it has no rule for are open.
type Gate string

// The gates. A workflow that is Held stands at GateTrust or GateApproval, one that is Waiting at one of the others.
const (
	// GateTrust is code from outside of the repository, for which a person must say yes first.
	GateTrust Gate = "trust"
	// GateNeeds are workflows of the pipeline that have not ended.
	GateNeeds Gate = "needs"
	// GateApproval is the approval that the workflow file asks for.
	GateApproval Gate = "approval"
	// GateOpen is none: a runner may take the workflow.
	GateOpen Gate = ""
	// GateGroup is another workflow of its concurrency group that runs. Only what stood at GateOpen comes here.
	GateGroup Gate = "group"
)

// Rules are what the workflow file says about the order of things. They never change.
type Rules struct {
	// WaitsFor names the workflows that must have ended before this one is decided on.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Group, if not empty, is the concurrency group in the repository: one workflow of it runs at a time. GroupCancel
	// says that a newer one also ends the one that runs.
	Group       string `json:"group,omitempty"`
	GroupCancel bool   `json:"groupCancel,omitempty"`
	// Approval, if not nil, is who must agree before the workflow starts.
	Approval *Approval `json:"approval,omitempty"`
	// Retry, if not nil, is which ends are followed by another attempt. See Repeats for what counts without it.
	Retry *Retry `json:"retry,omitempty"`
	// DeploysTo is the environment that the workflow changes.
	DeploysTo string `json:"deploysTo,omitempty"`
}

// Approval says who must agree.
type Approval struct {
	// OwnerOnly asks for the owner of the repository; otherwise a collaborator will do.
	OwnerOnly bool `json:"ownerOnly,omitempty"`
	// OthersOnly refuses whoever caused the run.
	OthersOnly bool `json:"othersOnly,omitempty"`
	// Expires is how long to wait; zero is the server's default.
	Expires time.Duration `json:"expires,omitempty"`
}

// Retry says that at most Max attempts may follow the first, after an end that On names.
type Retry struct {
	Max int     `json:"max"`
	On  []Fault `json:"on"`
}

// Fault is a kind of bad end of an attempt.
type Fault string

// The faults: the machinery's, a step's, and time that was up.
const (
	FaultMachinery Fault = "infrastructure"
	FaultStep      Fault = "failure"
	FaultTime      Fault = "timeout"
)

// faultOf is the fault that an attempt ended with; empty for none.
func faultOf(s Status) Fault {
	switch s {
	case Error:
		return FaultMachinery
	case Failed:
		return FaultStep
	case Timeout:
		return FaultTime
	}
	return ""
}

// Repeats tells whether the current attempt of w, which ended as s, is followed by another one, and how many attempts
// there can be. The file decides where it says anything (Rules.Retry). Where it does not, an attempt that was lost
// (its runner is gone, the server restarted) is repeated up to most attempts, unless it had been handed secrets or a
// token: what it did with them may not be done twice. Whoever asked for its end has it.
func (w Workflow) Repeats(s Status, lost, released bool, most int) (again bool, of int) {
	if r := w.Rules.Retry; r != nil {
		of = r.Max + 1
		return w.CancelBy == "" && w.Attempt < of && slices.Contains(r.On, faultOf(s)), of
	}
	return lost && w.CancelBy == "" && !released && w.Attempt < most, most
}

// next puts w at the first gate that it has after the gate from, for a hold of at most hold where it says nothing else.
func (w Workflow) next(from Gate, hold time.Duration, now time.Time) Workflow {
	w.Status, w.Gate, w.Reason, w.HeldUntil, w.ReadyAt = Waiting, GateOpen, "", time.Time{}, time.Time{}
	order := [...]Gate{GateTrust, GateNeeds, GateApproval}
	for _, g := range order[slices.Index(order[:], from)+1:] {
		switch {
		case g == GateNeeds && len(w.Rules.WaitsFor) > 0:
			w.Gate, w.Reason = g, WaitsFor(w.Rules.WaitsFor)
			return w
		case g == GateApproval && w.Rules.Approval != nil:
			a := w.Rules.Approval
			if a.Expires > 0 {
				hold = a.Expires
			}
			w.Status, w.Gate, w.Reason, w.HeldUntil = Held, g, a.sentence(), now.Add(hold)
			return w
		}
	}
	w.ReadyAt = now
	return w
}

// Born puts a workflow that is about to be planned at its first gate: a Held one needs a person's word that its code
// may run at all. What has ended stays as it is. hold is how long a person may take.
func (w Workflow) Born(hold time.Duration, now time.Time) Workflow {
	switch w.Status {
	case Held:
		w.Gate, w.HeldUntil = GateTrust, now.Add(hold)
		return w
	case Waiting:
		return w.next("", hold, now)
	}
	w.Gate = GateOpen
	return w
}

// maxNamed bounds the workflows that a reason names.
const maxNamed = 5

// WaitsFor is the reason of a workflow that waits for others.
func WaitsFor(names []string) string {
	s := "waits for "
	for i, n := range names {
		switch {
		case i == maxNamed:
			return s + " and others"
		case i > 0:
			s += ", "
		}
		s += n
	}
	return s
}

func (a Approval) sentence() string {
	s := "waits for the approval of somebody who may push to the repository"
	if a.OwnerOnly {
		s = "waits for the approval of the repository's owner"
	}
	if a.OthersOnly {
		s += "; who started the run cannot give it"
	}
	return s
}
