package ingest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/internal/clock"
	"spindle/store"
)

// Bounds of the proofs that are kept for the provers.
const (
	mostProof  = 1 << 20  // bytes of one
	mostProofs = 32 << 20 // bytes of all
	// freshProof is how old the revision of a proof may be that came with a frame. Whoever passes frames on may tell an
	// old one again; the account's own server is asked for what is older.
	freshProof = 5 * time.Minute
)

// proofs keeps what commits of the firehose proved of themselves until a prover comes to it. It forgets the oldest when
// it is full: then the account's server is asked, as for a hint of any other stream.
type proofs struct {
	mu    sync.Mutex
	by    map[store.Recheck]*proof
	order []*proof
	bytes int
}

type proof struct {
	car  []byte
	at   time.Time
	keys []store.Recheck
}

func newProofs() *proofs { return &proofs{by: map[store.Recheck]*proof{}} }

// put keeps the proof of a frame for each of its records.
func (p *proofs) put(f Frame, now time.Time) {
	if len(f.proof) > mostProof {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 && (p.bytes+len(f.proof) > mostProofs || now.Sub(p.order[0].at) > freshProof) {
		p.drop(p.order[0])
		p.order = p.order[1:]
	}
	n := &proof{car: bytes.Clone(f.proof), at: now}
	for _, o := range f.Ops {
		k := store.Recheck{DID: f.DID, Collection: o.Collection, Rkey: o.Rkey}
		n.keys = append(n.keys, k)
		p.by[k] = n
	}
	p.order = append(p.order, n)
	p.bytes += len(n.car)
}

func (p *proofs) drop(old *proof) {
	for _, k := range old.keys {
		if p.by[k] == old {
			delete(p.by, k)
		}
	}
	p.bytes -= len(old.car)
}

// take takes out the proof of one record.
func (p *proofs) take(k store.Recheck, now time.Time) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.by[k]
	if !ok {
		return nil, false
	}
	delete(p.by, k)
	return n.car, now.Sub(n.at) <= freshProof
}

// framed is a Prover that looks first at what came with the frame.
type framed struct {
	Prover
	proofs *proofs
	clock  clock.Clock
	count  func(string)
}

// Record implements Prover.
func (f framed) Record(ctx context.Context, did, collection, rkey string) (identity.Proven, error) {
	now := f.clock.Now()
	car, ok := f.proofs.take(store.Recheck{DID: did, Collection: collection, Rkey: rkey}, now)
	if !ok {
		return f.Prover.Record(ctx, did, collection, rkey)
	}
	p, err := f.Prover.RecordFrom(ctx, car, did, collection, rkey)
	switch {
	case err == nil && now.Sub(syntax.TID(p.Rev).Time()) <= freshProof:
		f.count("record_proven_by_frame")
		return p, nil
	case err != nil && !errors.Is(err, identity.ErrAbsent) && !identity.Temporary(err):
		f.count("record_frame_unproven")
	}
	return f.Prover.Record(ctx, did, collection, rkey)
}
