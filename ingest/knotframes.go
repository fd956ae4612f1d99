package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/lexicons/shtangled"
	"spindle/store"
)

// What knots tell of pushes on their streams.
const (
	pushEventNSID = "org.tangled.git.pushEvent"
	refUpdateNSID = "sh.tangled.git.refUpdate"
	pipelineNSID  = "sh.tangled.pipeline"
)

// errFuture is a host's word that the cursor is ahead of everything it has.
var errFuture = errors.New("ingest: the host says that the cursor is in the future")

// futureCursor is the name of that error on the wire (https://atproto.com/specs/event-stream).
const futureCursor = "FutureCursor"

// maxKnotFrame bounds one message of a knot's stream, with the text of the workflows that older knots send along;
// maxSigned bounds a signed push, which is stored until it is proven.
const (
	maxKnotFrame = 2 << 20
	maxSigned    = 128 << 10
)

// knotFrame is one message of a knot's stream.
type knotFrame struct {
	place int64 // what the cursor is after it; 0: it does not say
	at    time.Time
	kind  string // NSID; empty for one that is of no concern here
	claim claim
	// Whose repository the older events are about: its DID, or the owner's DID with a name.
	repo, owner, name string
}

// claim is a push that a knot's stream told of, as it waits for its proof.
type claim struct {
	Host  string    `json:"host"`
	Ref   string    `json:"ref,omitempty"`
	Old   string    `json:"old,omitempty"`
	New   string    `json:"new,omitempty"`
	Actor string    `json:"actor,omitempty"`
	At    time.Time `json:"at"`
	// Raw is the whole message where it is signed.
	Raw []byte `json:"raw,omitempty"`
}

// newerFrame reads a message of the stream org.tangled.git.subscribePushes: a header and the event, both DAG-CBOR.
func newerFrame(b []byte) (knotFrame, error) {
	op, kind, body, err := splitFrame(b)
	switch {
	case err != nil:
		return knotFrame{}, err
	case op == -1:
		return knotFrame{}, errorBody(body)
	case op != 1:
		return knotFrame{}, fmt.Errorf("%w: op %d", ErrFrame, op)
	case kind != pushEventNSID && kind != "#pushEvent":
		return knotFrame{}, nil
	}
	var e orgtangled.GitPushEvent
	if err := e.UnmarshalCBOR(bytes.NewReader(body)); err != nil {
		return knotFrame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	f := knotFrame{kind: pushEventNSID, repo: e.Repo, claim: claim{Raw: body}}
	if e.Seq != nil {
		f.place = *e.Seq
	}
	at, err := syntax.ParseDatetimeLenient(e.Time)
	if err != nil || f.place < 0 {
		return knotFrame{}, fmt.Errorf("%w: a push without its time or number", ErrFrame)
	}
	f.at = at.Time()
	return f, nil
}

// splitFrame reads the header of an event stream's message (https://atproto.com/specs/event-stream).
func splitFrame(b []byte) (op int64, kind string, body []byte, err error) {
	r := bytes.NewReader(b)
	cr := cbg.NewCborReader(r)
	bad := func(why any) (int64, string, []byte, error) {
		return 0, "", nil, fmt.Errorf("%w: header: %v", ErrFrame, why)
	}
	maj, n, err := cr.ReadHeader()
	if err != nil || maj != cbg.MajMap || n > 4 {
		return bad("not a small map")
	}
	for range n {
		key, err := cbg.ReadStringWithMax(cr, 16)
		if err != nil {
			return bad(err)
		}
		maj, v, err := cr.ReadHeader()
		switch {
		case err != nil:
			return bad(err)
		case key == "op" && maj == cbg.MajUnsignedInt && v < 1<<31:
			op = int64(v)
		case key == "op" && maj == cbg.MajNegativeInt && v < 1<<31:
			op = -1 - int64(v)
		case maj == cbg.MajTextString && v <= 256:
			text := make([]byte, v)
			if _, err := r.Read(text); err != nil && v > 0 {
				return bad(err)
			}
			if key == "t" {
				kind = string(text)
			}
		default:
			return bad("an unexpected value")
		}
	}
	return op, kind, b[len(b)-r.Len():], nil
}

// errorBody is what the last message of a stream that failed says.
func errorBody(body []byte) error {
	m, err := lexicons.Fields(body)
	if err != nil {
		return fmt.Errorf("%w: an error that cannot be read", ErrFrame)
	}
	name, _ := m["error"].(string)
	if name == futureCursor {
		return errFuture
	}
	return fmt.Errorf("the knot ends the stream: %q", cutWord(name))
}

func cutWord(s string) string { return s[:min(len(s), 64)] }

// olderFrame reads a message of the stream /events: JSON with a key, a kind and the event.
func olderFrame(b []byte) (knotFrame, error) {
	var m struct {
		Rkey, NSID, Error string
		Event             json.RawMessage
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return knotFrame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if m.Error == futureCursor {
		return knotFrame{}, errFuture
	}
	tid, err := syntax.ParseTID(m.Rkey)
	if err != nil {
		return knotFrame{}, fmt.Errorf("%w: its key is not a TID", ErrFrame)
	}
	at := tid.Time()
	f := knotFrame{place: at.UnixNano(), at: at}
	switch m.NSID {
	case refUpdateNSID:
		var e shtangled.GitRefUpdate
		if err := json.Unmarshal(m.Event, &e); err != nil {
			return f, fmt.Errorf("%w: %w", ErrFrame, err)
		}
		f.kind, f.owner, f.name = m.NSID, e.RepoDid, e.RepoName
		f.claim = claim{Ref: e.Ref, Old: e.OldSha, New: e.NewSha, Actor: e.CommitterDid}
	case pipelineNSID:
		return olderPipeline(f, m.Event)
	}
	return f, nil
}

// olderPipeline takes the trigger of a pipeline that the knot has compiled. Its workflows are not looked at: what
// runs is compiled here, from the files at the commit.
func olderPipeline(f knotFrame, event []byte) (knotFrame, error) {
	var e struct {
		TriggerMetadata shtangled.Pipeline_TriggerMetadata `json:"triggerMetadata"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	t := e.TriggerMetadata
	if t.Kind != "push" || t.Push == nil || t.Repo == nil {
		return f, nil // pull requests come as records, and people call themselves
	}
	f.kind, f.owner, f.name = pipelineNSID, t.Repo.Did, t.Repo.Repo
	if t.Repo.RepoDid != nil {
		f.repo = *t.Repo.RepoDid
	}
	f.claim = claim{Ref: t.Push.Ref, Old: t.Push.OldSha, New: t.Push.NewSha}
	return f, nil
}

// claimHint is the hint of a message about a repository that is served here and lies on this host. Nothing is
// fetched for others: most of what a knot tells is.
func (in *Ingest) claimHint(ctx context.Context, host string, f knotFrame) (store.Recheck, bool, error) {
	b, ok, err := in.claimed(ctx, host, f)
	if err != nil || !ok {
		return store.Recheck{}, false, err
	}
	c := f.claim
	c.Host, c.At = host, f.at
	sum := sha256.New()
	switch f.kind {
	case pushEventNSID:
		signed, sig, err := lexicons.Unsigned(c.Raw)
		if err != nil || len(c.Raw) > maxSigned {
			in.c.Count("knot_unsigned")
			return store.Recheck{}, false, nil
		}
		// With the signature: a wrong one must not take the place of the right one.
		sum.Write(signed)
		sum.Write(sig)
	default:
		if checkPush(PushCall{Ref: c.Ref, Old: c.Old, New: c.New}) != nil {
			in.c.Count("knot_bad_push")
			return store.Recheck{}, false, nil
		}
		if _, err := syntax.ParseDID(c.Actor); err != nil {
			c.Actor = ""
		}
		// The key holds the time: a ref may make the same move again, and both are proven.
		fmt.Fprintf(sum, "%s\n%s\n%s\n%d", c.Ref, c.Old, c.New, f.at.UnixMicro())
	}
	body, err := json.Marshal(c)
	if err != nil {
		return store.Recheck{}, false, fmt.Errorf("encode a push: %w", err)
	}
	return store.Recheck{DID: b.Repo, Collection: f.kind, Rkey: hex.EncodeToString(sum.Sum(nil)), Body: string(body)}, true, nil
}

// claimed finds the repository that a message is about, if host may speak for it.
func (in *Ingest) claimed(ctx context.Context, host string, f knotFrame) (b store.RepoBinding, ok bool, err error) {
	for _, did := range []string{f.repo, f.owner} { // the owner's field of some knots has the repository
		if did == "" {
			continue
		}
		if b, ok, err = in.c.Store.Repo(ctx, did); err != nil || ok {
			break
		}
	}
	if !ok && err == nil && f.owner != "" && f.name != "" {
		b, ok, err = in.c.Store.RepoNamed(ctx, host, f.owner, f.name)
	}
	if err != nil {
		return b, false, fmt.Errorf("find the repository of a push: %w", err)
	}
	if ok && !b.Gone && b.Knot != host {
		in.c.Count("knot_not_its_host")
	}
	return b, ok && !b.Gone && b.Knot == host, nil
}
