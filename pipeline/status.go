package pipeline

import "slices"

// Status is where a workflow, a pipeline or a step stands. One vocabulary serves the database, the API,
// the pages and the command line; Wire gives the word of the network's older vocabulary.
type Status string

// The statuses. Held needs a person; Error is a fault of the machinery and not of the person's code.
const (
	Waiting    Status = "waiting"
	Held       Status = "held"
	Preparing  Status = "preparing"
	Running    Status = "running"
	Passed     Status = "passed"
	Failed     Status = "failed"
	Error      Status = "error"
	Timeout    Status = "timeout"
	Cancelled  Status = "cancelled"
	Superseded Status = "superseded"
	Skipped    Status = "skipped"
	Invalid    Status = "invalid"
	Refused    Status = "refused"
	Expired    Status = "expired"
)

// Statuses lists every status once, from the beginning of a life to its ends.
func Statuses() []Status {
	return []Status{
		Waiting, Held, Preparing, Running, Passed, Failed, Error, Timeout,
		Cancelled, Superseded, Skipped, Invalid, Refused, Expired,
	}
}

// Terminal tells whether nothing follows s. What is not a status is terminal: nothing can be done with it.
func (s Status) Terminal() bool {
	switch s {
	case Waiting, Held, Preparing, Running:
		return false
	}
	return true
}

// Active tells whether an attempt holds a lease in s.
func (s Status) Active() bool { return s == Preparing || s == Running }

// Good tells whether s is an end that nobody needs to look at.
func (s Status) Good() bool { return s == Passed || s == Skipped }

// Wire is the word for s in the network's workflow statuses
// (pending, running, failed, timeout, cancelled, success).
func (s Status) Wire() string {
	switch s {
	case Waiting, Held:
		return "pending"
	case Preparing, Running:
		return "running"
	case Passed, Skipped:
		return "success"
	case Timeout:
		return "timeout"
	case Cancelled, Superseded, Expired:
		return "cancelled"
	}
	return "failed"
}

// Symbol is the one character that stands beside the word in pages and terminals.
func (s Status) Symbol() string {
	switch s {
	case Waiting:
		return "◔"
	case Held:
		return "⏸"
	case Preparing:
		return "◑"
	case Running:
		return "▶"
	case Passed:
		return "✓"
	case Failed, Invalid:
		return "✗"
	case Error:
		return "!"
	case Timeout:
		return "⧖"
	case Cancelled, Superseded, Expired, Refused:
		return "⊘"
	case Skipped:
		return "○"
	}
	return "?"
}

// Label is how s reads to a person.
func (s Status) Label() string {
	switch s {
	case Held:
		return "needs approval"
	case Preparing:
		return "starting"
	case Timeout:
		return "timed out"
	}
	return string(s)
}

// Summarize is the status of a pipeline whose workflows stand at ss: what is alive wins over what has
// ended, and among the ended the worst wins. No workflow at all is Skipped. A status that is not one of
// Statuses counts as Error, so that what is not understood is never told as good.
func Summarize(ss []Status) Status {
	order := [...]Status{
		Running, Preparing, Held, Waiting,
		Failed, Error, Timeout, Invalid, Refused, Expired, Cancelled, Superseded, Passed, Skipped,
	}
	best := len(order) - 1
	for _, s := range ss {
		i := slices.Index(order[:], s)
		if i < 0 {
			i = slices.Index(order[:], Error)
		}
		best = min(best, i)
	}
	return order[best]
}
