package ingest

import (
	"errors"
	"fmt"
)

// ErrFrame is a message of a record stream that is not a frame.
var ErrFrame = errors.New("ingest: not a frame of a record stream")

// HostError is an error that a host of a record stream told in its own words, in a frame or before the stream began.
type HostError struct {
	// Name is the protocol's word, such as FutureCursor; it may be empty.
	Name    string
	Message string
}

// Error implements error. What a host says is bounded and quoted.
func (e *HostError) Error() string {
	return fmt.Sprintf("the host says %.64q: %.200q", e.Name, e.Message)
}

// The kinds of frames that mean something here. Others may come and are passed over.
const (
	KindCommit   = "commit"
	KindIdentity = "identity"
	KindAccount  = "account"
	KindSync     = "sync"
	kindInfo     = "info"
)

// Frame is what the server reads of one message of a record stream, whichever protocol it came by. Records are not
// read: they are unsigned in a Jetstream, so only their places count.
type Frame struct {
	// DID is whose repository or account it is about. It is empty in a commit that was seen to concern nobody here.
	DID string
	// Pos is where the stream stands after the frame, as its cursor counts: microseconds since 1970 in version 1 of
	// Jetstream, and a number of the host's own in the others. 0 is a frame that moves nothing.
	Pos int64
	// TimeUS is the stream's own time, in microseconds since 1970; 0 if the frame has none.
	TimeUS int64
	Kind   string
	// Rev is the revision of a commit or of a sync.
	Rev string
	Ops []Op
	// Active and Status are an account's.
	Active bool
	Status string

	// name is what an info says.
	name string
	// proof is the CAR of a signed commit with the blocks of its Ops, where the protocol carries one.
	proof []byte
}

// Op is one record operation of a commit.
type Op struct {
	// Action is create, update or delete.
	Action string
	// Collection and Rkey are the record's place.
	Collection, Rkey string
}

// check refuses frames without the parts that their kind must have: a host that speaks another protocol decodes to
// just that, and would otherwise look healthy while nothing is delivered.
func (f *Frame) check() error {
	if f.Kind == "" || f.Kind != kindInfo && (f.DID == "" || f.Pos <= 0 || f.TimeUS < 0) {
		return fmt.Errorf("%w: no account, kind or place in the stream", ErrFrame)
	}
	if f.Kind != KindCommit {
		return nil
	}
	if f.Rev == "" {
		return fmt.Errorf("%w: a commit without its revision", ErrFrame)
	}
	for _, o := range f.Ops {
		if o.Collection == "" || o.Rkey == "" {
			return fmt.Errorf("%w: a commit without its place", ErrFrame)
		}
	}
	return nil
}
