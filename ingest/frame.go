package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrFrame is a message of a record stream that is not a frame.
var ErrFrame = errors.New("ingest: not a frame of a record stream")

// Frame is what the server reads of one Jetstream message (version 1, JSON). The record itself is not read:
// it is unsigned, so only its place counts.
type Frame struct {
	DID string `json:"did"`
	// TimeUS is the stream's own time, in microseconds since 1970; it serves as the cursor.
	TimeUS int64 `json:"time_us"`
	// Kind is commit, identity or account; others may come and are passed over.
	Kind   string `json:"kind"`
	Commit *struct {
		Rev        string `json:"rev"`
		Operation  string `json:"operation"`
		Collection string `json:"collection"`
		Rkey       string `json:"rkey"`
	} `json:"commit"`
}

// parseFrame reads one message. A frame without its account, its time or, for a commit, its place is ErrFrame:
// another protocol decodes to just that, and would otherwise look healthy while nothing is delivered.
func parseFrame(msg []byte) (Frame, error) {
	var f Frame
	if err := json.Unmarshal(msg, &f); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	switch c := f.Commit; {
	case f.DID == "" || f.Kind == "" || f.TimeUS <= 0:
		return Frame{}, fmt.Errorf("%w: no account, kind or time", ErrFrame)
	case f.Kind == "commit" && (c == nil || c.Rev == "" || c.Collection == "" || c.Rkey == ""):
		return Frame{}, fmt.Errorf("%w: a commit without its place", ErrFrame)
	}
	return f, nil
}
