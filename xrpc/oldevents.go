package xrpc

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/gorilla/websocket"

	"spindle/lexicons/shtangled"
	"spindle/pipeline"
)

// oldFrame is one text frame of the older event stream.
type oldFrame struct {
	Rkey  string                    `json:"rkey"`
	NSID  string                    `json:"nsid"`
	Event *shtangled.PipelineStatus `json:"event"`
	// Cursor is the change number to go on after; older readers do not know it.
	Cursor int64 `json:"cursor"`
}

// nanos is where cursors stop being change numbers and are Unix nanoseconds: 1e15 of those is the
// 12th of January 1970.
const nanos = int64(1_000_000_000_000_000)

// oldEvents is the event stream of the older generation: the status of each workflow as it changes, read
// from the change numbers by cursor. ?cursor= is the number of a change or a time in Unix nanoseconds, after
// which to begin; without it the stream begins with the next change.
func (s *Server) oldEvents() http.HandlerFunc {
	return serveStream(s, "/events", s.admitEvents, s.sendEvents, noErrorFrame)
}

// admitEvents is the number of the change after which to begin.
func (s *Server) admitEvents(r *http.Request) (int64, error) {
	last, err := s.c.Pipelines.LastChange(r.Context())
	if err != nil {
		return 0, err
	}
	text := r.URL.Query().Get("cursor")
	if text == "" {
		return last, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 0:
		return 0, refuse(InvalidRequest, "the cursor is the number of a change or a time in Unix nanoseconds")
	case n >= nanos:
		return s.changeBefore(r.Context(), time.Unix(0, n), last)
	case n > last:
		return 0, refuse(InvalidRequest, "the cursor is of a change that has not been; the newest is "+strconv.FormatInt(last, 10))
	}
	return n, nil
}

// changeBefore is the number of the last change that was not after t. Numbers grow with time, so that a few
// probes find it.
func (s *Server) changeBefore(ctx context.Context, t time.Time, last int64) (int64, error) {
	low, high := int64(0), last // every change up to low is at or before t, every one above high is after it
	for low < high {
		mid := low + (high-low)/2
		next, err := s.c.Pipelines.Changes(ctx, mid, 1)
		if err != nil {
			return 0, err
		}
		if len(next) == 0 || next[0].Number > high || next[0].At.After(t) {
			high = mid
		} else {
			low = next[0].Number
		}
	}
	return low, nil
}

// sendEvents sends the changes after a number, for ever.
func (s *Server) sendEvents(ctx context.Context, st *stream, after int64) error {
	knots := knotCache{s: s, of: map[pipeline.ID]string{}}
	for {
		changed := s.c.Pipelines.Changed()
		page, err := s.c.Pipelines.Changes(ctx, after, s.c.Limits.Page)
		if err != nil {
			return err
		}
		for _, c := range page {
			after = c.Number
			if c.Workflow == "" || c.Step >= 0 {
				continue
			}
			knot, err := knots.get(ctx, c.Pipeline)
			if err != nil {
				return err
			}
			b, err := json.Marshal(statusFrame(c, knot))
			if err != nil {
				return err
			}
			if err := st.send(websocket.TextMessage, b); err != nil {
				return err
			}
		}
		if len(page) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// statusFrame is one change of a workflow. Its record key is made of the change alone, so that who reads it
// twice knows it again.
func statusFrame(c pipeline.Change, knot string) oldFrame {
	e := &shtangled.PipelineStatus{
		LexiconTypeID: "sh.tangled.pipeline.status",
		Pipeline:      "at://did:web:" + strings.ReplaceAll(knot, ":", "%3A") + "/sh.tangled.pipeline/" + string(c.Pipeline),
		Workflow:      c.Workflow,
		Status:        c.Status.Wire(),
		CreatedAt:     timestamp(c.At),
	}
	if c.Status.Terminal() && !c.Status.Good() {
		e.Error = opt(clip(c.Reason, 3000))
	}
	if c.Status == pipeline.Passed || c.Status == pipeline.Failed {
		e.ExitCode = optInt(c.ExitCode)
	}
	rkey := syntax.NewTID(c.At.UnixMicro(), uint(c.Number)&1023)
	return oldFrame{Rkey: rkey.String(), NSID: e.LexiconTypeID, Event: e, Cursor: c.Number}
}

// maxKnots bounds how many pipelines a stream remembers the knot of.
const maxKnots = 256

// knotCache remembers on which knot the repositories of pipelines are.
type knotCache struct {
	s  *Server
	of map[pipeline.ID]string
}

func (k *knotCache) get(ctx context.Context, id pipeline.ID) (string, error) {
	if host, ok := k.of[id]; ok {
		return host, nil
	}
	p, _, err := k.s.c.Pipelines.Pipeline(ctx, id)
	if err != nil {
		return "", err
	}
	if len(k.of) >= maxKnots {
		clear(k.of)
	}
	k.of[id] = knotHost(p)
	return k.of[id], nil
}
