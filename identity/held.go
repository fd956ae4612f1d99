package identity

import "context"

// Proofs may travel with a context: whoever asks a Prover for a record with it is answered from what was verified
// before, without asking the record's host again. This is how a whole repo goes through code that was written for
// single records.

type heldKey struct{}

// held answers for one DID.
type held interface {
	// record is the answer for a record; false means that nothing is known of it here.
	record(did, collection, rkey string) (Proven, bool, error)
}

// WithRepo returns a context in which r answers for its DID: present records and proven absences alike. r must stay
// open as long as the context is used.
func WithRepo(ctx context.Context, r *Repo) context.Context {
	return context.WithValue(ctx, heldKey{}, heldRepo{r})
}

// WithProofs returns a context in which these records need no further proof. Nothing follows for others.
func WithProofs(ctx context.Context, proofs []Proven) context.Context {
	set := heldProofs{}
	for _, p := range proofs {
		set[[3]string{p.DID, p.Collection, p.Rkey}] = p
	}
	return context.WithValue(ctx, heldKey{}, set)
}

// Held is what the proofs that travel with ctx say about a record; ok is false when they say nothing. An absence is
// an *Absence. Whoever stands in for a Prover asks it first.
func Held(ctx context.Context, did, collection, rkey string) (p Proven, ok bool, err error) {
	h, is := ctx.Value(heldKey{}).(held)
	if !is {
		return Proven{}, false, nil
	}
	return h.record(did, collection, rkey)
}

type heldRepo struct{ r *Repo }

func (h heldRepo) record(did, collection, rkey string) (Proven, bool, error) {
	if did != h.r.did {
		return Proven{}, false, nil
	}
	p, err := h.r.Record(collection, rkey)
	return p, true, err
}

type heldProofs map[[3]string]Proven

func (h heldProofs) record(did, collection, rkey string) (Proven, bool, error) {
	p, ok := h[[3]string{did, collection, rkey}]
	return p, ok, nil
}
