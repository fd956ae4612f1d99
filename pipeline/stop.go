package pipeline

// StopKind says what ended an attempt from outside.
type StopKind string

// The kinds of stop.
const (
	// StopCancel is a person's or the spindle's wish, recorded before it was delivered.
	StopCancel StopKind = "cancel"
	// StopStale is the loss of the lease: another attempt may be running, so nothing more may be told.
	StopStale StopKind = "stale"
	// StopDrain is the end of the server that runs the attempt.
	StopDrain StopKind = "drain"
)

// Stop is the cause with which the context of an attempt ends when somebody ends it
// (context.Cause). A timeout is not a Stop.
type Stop struct {
	Kind StopKind
	// By is the DID that asked, or "spindle"; empty for a lease that was lost.
	By string
}

// Error implements error.
func (s *Stop) Error() string { return "stopped: " + s.Sentence() }

// Sentence says to a person what happened, without a full stop.
func (s *Stop) Sentence() string {
	by := s.By
	if by == "" {
		by = "spindle"
	}
	switch s.Kind {
	case StopCancel:
		return "cancelled by " + by
	case StopDrain:
		return "interrupted: the spindle was stopped (not your code)"
	case StopStale:
		return "the right to run was lost; another attempt may have it"
	}
	return "ended by " + by
}
