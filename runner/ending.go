package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"

	"spindle/engines"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
)

// ending is how an attempt ended.
type ending struct {
	status  pipeline.Status
	exit    int
	reason  string
	drained bool // the attempt is handed back; the other fields are empty
	goesOn  bool // it is the end of a step whose machine can run others
}

// errTimeout is the cause of a context that ended because the workflow's time was up.
var errTimeout = errors.New("the workflow's time is up")

// ended tells how the attempt ends if its context has ended.
func (a *attempt) ended(ctx context.Context) (ending, bool) {
	if ctx.Err() == nil {
		return ending{}, false
	}
	cause := context.Cause(ctx)
	var stop *pipeline.Stop
	switch {
	case errors.As(cause, &stop) && stop.Kind == pipeline.StopStale:
		a.stale = true
		return ending{}, true
	case errors.As(cause, &stop) && stop.Kind == pipeline.StopCancel:
		return ending{status: pipeline.Cancelled, reason: stop.Sentence()}, true
	case errors.Is(cause, errTimeout):
		reason := fmt.Sprintf("stopped at the workflow's limit of %s; a longer one is set with `timeout:`", a.limit)
		if a.limit >= a.r.c.MaxTimeout {
			reason = fmt.Sprintf("stopped at the limit of %s, the longest that this spindle allows", a.limit)
		}
		return ending{status: pipeline.Timeout, reason: reason}, true
	}
	return ending{drained: true}, true
}

// stopped turns the failure of something that is not a step into an ending. A context that ended explains
// the failure better than the error does, and a lease that was lost silences the attempt.
func (a *attempt) stopped(ctx context.Context, err error) ending {
	if lost(err) {
		a.stale = true
		return ending{}
	}
	if end, ok := a.ended(ctx); ok {
		return end
	}
	end := ending{status: pipeline.Error, reason: publicReason(err)}
	var refusal *store.Refusal
	if errors.As(err, &refusal) {
		end.status = pipeline.Cancelled // nothing is broken: it may no longer run here
	}
	a.log.Error("the attempt failed outside of its steps", "err", err)
	a.say(-1, end.reason)
	return end
}

// say writes a sentence of the spindle's own into the log, if there is one. The rows carry it too, so a log
// that cannot take it is only noted.
func (a *attempt) say(step int, sentence string) {
	if a.out == nil {
		return
	}
	if err := a.out.System(step, sentence+"\n"); err != nil {
		a.log.Error("write the reason to the log", "step", step, "err", err)
	}
}

// lost tells whether err says that the attempt no longer holds its lease.
func lost(err error) bool {
	return errors.Is(err, pipeline.ErrStale) || errors.Is(err, pipeline.ErrEnded)
}

// publicReason is what anyone may read of err.
func publicReason(err error) string {
	var refusal *store.Refusal
	var e *engines.Error
	switch {
	case errors.As(err, &refusal):
		return refusal.Decision.Sentence
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "the spindle's disk is full (not your code); its owner has to free some space"
	case errors.As(err, &e):
		return e.Public
	}
	if s, ok := knot.Sentence(err); ok {
		return s
	}
	return "the machinery that runs this workflow had a fault; it is not your code"
}

// guarded calls f and turns a panic into an error: a fault in one attempt's engine must not end the server
// and with it everybody's attempts.
func guarded[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
