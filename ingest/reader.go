package ingest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/store"
)

// The collections that matter, in the native generation of the network.
const (
	declarationNSID  = "org.tangled.repo.declaration"
	manifestNSID     = "org.tangled.repo.manifest"
	collaboratorNSID = "org.tangled.graph.collaborator"
	ticketNSID       = "org.tangled.track.ticket"
	patchNSID        = "org.tangled.review.patch"
)

// Collections lists what the server asks a record stream for.
func Collections() []string {
	return []string{declarationNSID, manifestNSID, collaboratorNSID, ticketNSID, patchNSID}
}

const (
	jetstreamSource = "jetstream"
	protocolV1      = "v1"
	// batchMost bounds what one transaction takes from a stream.
	batchMost = 512
	// maxAhead is how far ahead of our clock a stream's time may be and still move the cursor. A cursor never
	// goes back, so one frame from the far future would otherwise leave every later gap unread.
	maxAhead = 5 * time.Minute
	// idleSave is how often the cursor is saved while nothing of ours comes by.
	idleSave = time.Second
)

// reader commits a stream's hints and cursor in batches.
type reader struct {
	in     *Ingest
	host   string
	frames chan Frame
	// told is the highest credible time that was taken. Until the process ends it is as good as the stored
	// cursor: what is in frames is written, however long that takes. Only the stream's goroutine uses it.
	told int64
}

// Follow reads the Jetstream at endpoint until ctx ends.
func (in *Ingest) Follow(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("jetstream endpoint: %w", err)
	}
	r := &reader{in: in, host: u.Host, frames: make(chan Frame, batchMost)}
	s, err := NewStream(StreamConfig{
		URL: endpoint, Collections: Collections(), Dial: in.c.Dial, Clock: in.c.Clock, Log: in.c.Log,
		Sink: r.sink, Cursor: r.cursor,
		State: func(up bool, detail string) { in.c.Health("jetstream", up, detail) },
		Bad:   func() { in.c.Count("jetstream_bad_frame") },
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.commit(ctx) })
	defer wg.Wait()
	return s.Run(ctx)
}

func (r *reader) cursor(ctx context.Context) (int64, error) {
	c, _, err := r.in.c.Store.Cursor(ctx, jetstreamSource, r.host, protocolV1)
	return max(c.Value, r.told), err
}

func (r *reader) sink(ctx context.Context, f Frame) error {
	select {
	case r.frames <- f:
		if r.credible(f) {
			r.told = max(r.told, f.TimeUS)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// credible tells whether a frame's time may move the cursor.
func (r *reader) credible(f Frame) bool {
	return f.TimeUS <= r.in.c.Clock.Now().Add(maxAhead).UnixMicro()
}

// commit takes what has come by, as much at a time as is there, and writes it in one transaction.
func (r *reader) commit(ctx context.Context) {
	saved := r.in.c.Clock.Now()
	for {
		var first Frame
		select {
		case <-ctx.Done():
			return
		case first = <-r.frames:
		}
		hints, last := r.batch(ctx, first)
		now := r.in.c.Clock.Now()
		if len(hints) == 0 && (last == 0 || now.Sub(saved) < idleSave) {
			continue
		}
		e := store.Effects{Rechecks: hints}
		if last > 0 {
			e.Cursor = &store.Cursor{Source: jetstreamSource, Host: r.host, Protocol: protocolV1, Value: last}
		}
		// A frame that is not written must not be passed over, so this goes on until it is or ctx ends.
		for {
			_, err := r.in.c.Store.Accept(ctx, e)
			if err == nil {
				break
			}
			r.in.c.Log.Error("write hints and cursor", "hints", len(hints), "err", err)
			if r.in.c.Clock.Sleep(ctx, time.Second) != nil {
				return
			}
		}
		saved = now
		if len(hints) > 0 {
			r.in.wakeProvers()
		}
	}
}

// batch drains what is waiting behind first. last is the highest credible time seen, or 0: a lower one that
// comes late is covered by the rewind, and the cursor never goes back.
func (r *reader) batch(ctx context.Context, first Frame) (hints []store.Recheck, last int64) {
	seen := map[store.Recheck]bool{}
	take := func(f Frame) {
		if r.credible(f) {
			last = max(last, f.TimeUS)
		} else {
			r.in.c.Count("jetstream_future_frame")
		}
		h, ok := hint(f)
		if !ok {
			h, ok = r.in.AccountHint(ctx, f.DID, f.Kind)
		}
		if ok && !seen[h] {
			seen[h] = true
			hints = append(hints, h)
		}
	}
	take(first)
	for range batchMost - 1 {
		select {
		case f := <-r.frames:
			take(f)
		default:
			return hints, last
		}
	}
	return hints, last
}

// hint is what a frame hints at; false for frames that concern nobody here.
func hint(f Frame) (store.Recheck, bool) {
	c := f.Commit
	if f.Kind != "commit" || c == nil || !strings.HasPrefix(c.Collection, "org.tangled.") {
		return store.Recheck{}, false
	}
	switch c.Collection {
	case declarationNSID, manifestNSID, collaboratorNSID, ticketNSID, patchNSID:
	default:
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseDID(f.DID); err != nil {
		return store.Recheck{}, false
	}
	if _, err := syntax.ParseRecordKey(c.Rkey); err != nil {
		return store.Recheck{}, false
	}
	return store.Recheck{DID: f.DID, Collection: c.Collection, Rkey: c.Rkey}, true
}
