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
	Kind   StopKind
	By     string
	Reason string
}

// Error implements error.
func (s *Stop) Error() string {
	if s.By == "" {
		return "stopped: " + string(s.Kind)
	}
	return "stopped: " + string(s.Kind) + " by " + s.By
}
