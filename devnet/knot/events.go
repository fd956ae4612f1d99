package knot

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/internal/clock"
)

const (
	pingEvery    = 30 * time.Second
	writeTimeout = 5 * time.Second

	// RefUpdate and Pipeline are what older knots tell of a push.
	RefUpdate = "sh.tangled.git.refUpdate"
	Pipeline  = "sh.tangled.pipeline"
	// pushStream is where newer knots tell of pushes, signed.
	pushStream = "/xrpc/org.tangled.git.subscribePushes"
	pushEvent  = "org.tangled.git.pushEvent"
)

// StreamFaults is what the knot's event streams tell, and how they misbehave. The zero value is an honest knot
// that tells of a push on both streams.
type StreamFaults struct {
	// Older lists the kinds of event that the older stream gets for each push, in order; nil means RefUpdate.
	Older []string
	// NoOlder and NoNewer answer 404 instead of a stream.
	NoOlder, NoNewer bool
	// CutAfter ends each connection after so many messages; 0 never does.
	CutAfter int
	// Duplicate sends each message twice.
	Duplicate bool
	// Reorder sends messages that are there already in blocks of so many, each block backwards.
	Reorder int
	// Frame refuses a cursor of the future by a message on the open connection instead of by a status.
	Frame bool
}

// message is one message of a stream.
type message struct {
	place int64 // what cursors compare with: unix nanoseconds on the older stream, a number on the newer
	body  []byte
}

// events is one stream: what is later than the cursor (exclusive), then what happens. Without a cursor it begins
// with the present. A cursor ahead of everything is refused where places are numbers.
type events struct {
	clock  clock.Clock
	newer  bool
	faults func() StreamFaults

	mu       sync.Mutex
	log      []message
	more     chan struct{}
	connects []string // the cursors asked for
	open     int
}

// push adds a message; body gets its place.
func (e *events) push(at time.Time, body func(place int64) []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	place := at.UnixNano()
	if e.newer {
		place = 1
	}
	if n := len(e.log); n > 0 && place <= e.log[n-1].place {
		place = e.log[n-1].place + 1
	}
	e.log = append(e.log, message{place: place, body: body(place)})
	close(e.more)
	e.more = make(chan struct{})
}

// ForgeEvent adds an event to the older stream that no push made.
func (k *Knot) ForgeEvent(nsid string, event any) { k.ForgeEventAt(nsid, event, k.cfg.Clock.Now()) }

// ForgeEventAt is ForgeEvent at another time.
func (k *Knot) ForgeEventAt(nsid string, event any, at time.Time) {
	text, err := json.Marshal(event)
	if err != nil {
		return // callers pass maps of plain values only
	}
	k.older.push(at, func(place int64) []byte {
		rkey := syntax.NewTIDFromTime(time.Unix(0, place), 0).String()
		b, _ := json.Marshal(map[string]any{"rkey": rkey, "nsid": nsid, "event": json.RawMessage(text)})
		return b
	})
}

// ForgePush adds a message to the newer stream that no push made, signed by key; nil leaves the signature out.
func (k *Knot) ForgePush(event map[string]any, key atcrypto.PrivateKey) error {
	signed, err := atdata.MarshalCBOR(event)
	if err != nil {
		return err
	}
	if key != nil {
		sig, err := key.HashAndSign(signed)
		if err != nil {
			return err
		}
		event["sig"] = atdata.Bytes(sig)
	}
	k.newer.push(k.cfg.Clock.Now(), func(place int64) []byte {
		event["seq"] = place
		head, _ := atdata.MarshalCBOR(map[string]any{"op": int64(1), "t": pushEvent})
		body, _ := atdata.MarshalCBOR(event)
		return slices.Concat(head, body)
	})
	return nil
}

// PushEvent is a push as the newer stream tells it, without number and signature.
func PushEvent(p Push, at time.Time) map[string]any {
	e := map[string]any{
		"repo": p.Repo.String(), "pusher": p.Actor.String(), "time": at.UTC().Format(syntax.AtprotoDatetimeLayout),
		"edits": []any{map[string]any{"name": p.Ref, "old": p.OldSHA, "new": p.NewSHA}},
	}
	if len(p.Options) > 0 {
		var os []any
		for _, o := range p.Options {
			os = append(os, o)
		}
		e["options"] = os
	}
	return e
}

// OlderEvent is a push as the older stream tells it, in the given kind.
func (k *Knot) OlderEvent(kind string, p Push, r *Repo) any {
	if kind == Pipeline {
		return map[string]any{
			"$type": Pipeline, "workflows": []any{}, "triggerMetadata": map[string]any{
				"kind": "push", "push": map[string]any{"ref": p.Ref, "newSha": p.NewSHA, "oldSha": p.OldSHA},
				"repo": map[string]any{"knot": "", "did": r.Owner.String(), "repo": r.Name, "defaultBranch": r.DefaultBranch},
			},
		}
	}
	return map[string]any{
		"$type": kind, "ref": p.Ref, "committerDid": p.Actor.String(), "repoDid": r.Owner.String(),
		"repoName": r.Name, "oldSha": p.OldSHA, "newSha": p.NewSHA,
		"meta": map[string]any{
			"isDefaultRef": p.Ref == "refs/heads/"+r.DefaultBranch,
			"commitCount":  map[string]any{"byEmail": []any{}},
		},
	}
}

// stream tells both streams of p.
func (k *Knot) stream(p Push, r *Repo) {
	kinds := k.streamFaults().Older
	if kinds == nil {
		kinds = []string{RefUpdate}
	}
	for _, kind := range kinds {
		k.ForgeEvent(kind, k.OlderEvent(kind, p, r))
	}
	records, err := k.cfg.Records.Repo(p.Repo)
	if err == nil {
		err = k.ForgePush(PushEvent(p, k.cfg.Clock.Now()), records.Key())
	}
	if err != nil {
		k.cfg.Log.Error("a push is not told of", "repo", p.Repo, "err", err)
	}
}

// SetStreams replaces what the streams do. Connections that are open keep what they began with.
func (k *Knot) SetStreams(f StreamFaults) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = f
}

func (k *Knot) streamFaults() StreamFaults {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.faults
}

// Renumber forgets the newer stream, as a server that was built anew: its numbers begin at 1 again.
func (k *Knot) Renumber() {
	k.newer.mu.Lock()
	defer k.newer.mu.Unlock()
	k.newer.log = nil
}

// StreamConnects lists the cursors that were asked for on the older and the newer stream.
func (k *Knot) StreamConnects() (older, newer []string) {
	of := func(e *events) []string {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Clone(e.connects)
	}
	return of(k.older), of(k.newer)
}

// StreamReaders is how many connections are open on the older and the newer stream.
func (k *Knot) StreamReaders() (older, newer int) {
	of := func(e *events) int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.open
	}
	return of(k.older), of(k.newer)
}
