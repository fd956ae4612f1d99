package identity

import (
	"context"
	"fmt"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// RecordFrom proves one record from a CAR that came with a commit of the firehose
// (https://atproto.com/specs/sync#commit-validation): its blocks are a diff of the repo, which holds the path to each
// record that the commit changed. Nobody who passed it on is believed. A path that the diff does not hold is ErrProof;
// the errors are otherwise those of Record, but the document is not asked for anew when a signature does not verify.
func (p *Prover) RecordFrom(ctx context.Context, car []byte, did, collection, rkey string) (Proven, error) {
	if _, err := syntax.ParseNSID(collection); err != nil {
		return Proven{}, fmt.Errorf("%w: collection: %w", ErrProof, err)
	}
	if _, err := syntax.ParseRecordKey(rkey); err != nil {
		return Proven{}, fmt.Errorf("%w: record key: %w", ErrProof, err)
	}
	id, err := p.dir.Lookup(ctx, did)
	if err != nil {
		return Proven{}, err
	}
	cbor, c, rev, err := p.prove(ctx, id, car, collection+"/"+rkey)
	if err != nil {
		return Proven{}, fmt.Errorf("prove %s/%s of %s by its commit: %w", collection, rkey, did, err)
	}
	return Proven{DID: did, Collection: collection, Rkey: rkey, CBOR: cbor, CID: c, Rev: rev}, nil
}
