package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/store"
)

// declaration follows an owner's declaration to the repositories that it names, or named until now: each gets
// a hint of its own, so that all that binds one repository happens one after the other.
func (in *Ingest) declaration(ctx context.Context, r store.Recheck) (store.Effects, error) {
	served, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	for _, b := range served {
		if b.Owner == r.DID && b.Rkey == r.Rkey && !b.Gone {
			e.Rechecks = append(e.Rechecks, bindAgain(b.Repo))
		}
	}
	if ok, err := in.admitted(ctx, r.DID); err != nil || !ok {
		return e, err
	}
	proven, err := in.c.Prover.Record(ctx, r.DID, declarationNSID, r.Rkey)
	if errors.Is(err, identity.ErrAbsent) {
		e.Records = gone(r, err)
		return e, nil
	}
	if err != nil {
		return store.Effects{}, err
	}
	rec, view, err := decode[orgtangled.RepoDeclaration](in, proven)
	if err != nil {
		return store.Effects{}, err
	}
	e.Records = append(e.Records, record(r, proven, rec))
	if again := bindAgain(view.Repo); !slices.Contains(e.Rechecks, again) {
		e.Rechecks = append(e.Rechecks, again)
	}
	return e, nil
}

// bindAgain is the hint that a repository's binding may have changed.
func bindAgain(repo string) store.Recheck {
	return store.Recheck{DID: repo, Collection: manifestNSID, Rkey: "self"}
}

// gone is the proven absence of a record, if the proof tells at which revision: an older copy then has no effect.
func gone(r store.Recheck, err error) []store.Record {
	var a *identity.Absence
	if !errors.As(err, &a) {
		return nil
	}
	return []store.Record{{DID: r.DID, Collection: r.Collection, Rkey: r.Rkey, Rev: a.Rev, Deleted: true}}
}

// decode reads a proven record and checks it against its lexicon. The raw bytes stay the truth; the view is
// for reading.
func decode[T any, P interface {
	*T
	cbg.CBORUnmarshaler
}](in *Ingest, p identity.Proven) (lexicons.Record, *T, error) {
	rec, err := lexicons.FromCBOR(p.CBOR)
	if err != nil {
		return rec, nil, err
	}
	catalog, err := in.catalog()
	if err != nil {
		return rec, nil, fmt.Errorf("read our own lexicons: %w", err)
	}
	if err := rec.Validate(catalog); err != nil {
		return rec, nil, err
	}
	v, err := lexicons.Decode[T, P](rec)
	return rec, v, err
}

func record(r store.Recheck, p identity.Proven, rec lexicons.Record) store.Record {
	return store.Record{
		DID: r.DID, Collection: r.Collection, Rkey: r.Rkey, Rev: p.Rev, CID: p.CID, CBOR: rec.Bytes(),
	}
}
