package pds

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Tamper is one way in which the proofs of a repository are wrong.
type Tamper int

// The ways. Each concerns com.atproto.sync.getRecord and getRepo only.
const (
	Honest       Tamper = iota
	BadSignature        // signed with a key that is not in the directory
	HighS               // the signature's other form, which atproto refuses
	OtherDID            // the commit names another DID, well signed
	CorruptBlock        // the last block does not have the hash that its CID says
	Truncated           // the CAR ends in the middle of a block
	ForgedTree          // the commit is real; tree and record are another's
	FutureRev           // the revision lies a day ahead, well signed
	Rollback            // the state of the moment when Tamper was called, whatever is written later
)

// Tamper makes the proofs of the repository wrong in the way t, until Tamper(Honest).
func (r *Repo) Tamper(t Tamper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tamper = t
	r.frozen = nil
	if t == Rollback {
		r.frozen = &state{head: r.head, tree: r.tree.Copy(), records: maps.Clone(r.records)}
	}
}

// bend returns s as the repository's tampering shows it. The caller holds the lock.
func (r *Repo) bend(s state, collection, rkey string) (state, error) {
	c := s.head.commit
	var err error
	switch r.tamper {
	case BadSignature:
		stranger, kerr := atcrypto.GeneratePrivateKeyK256()
		if kerr != nil {
			return state{}, fmt.Errorf("make a key: %w", kerr)
		}
		s.head, err = signCommit(c, stranger)
	case HighS:
		c.Sig = highS(r.key, c.Sig)
		s.head, err = encodeCommit(c)
	case OtherDID:
		c.DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
		s.head, err = signCommit(c, r.key)
	case FutureRev:
		p, perr := syntax.ParseTID(c.Rev)
		if perr != nil {
			return state{}, fmt.Errorf("read the revision: %w", perr)
		}
		c.Rev = syntax.NewTID(p.Time().Add(24*time.Hour).UnixMicro(), 0).String()
		s.head, err = signCommit(c, r.key)
	case ForgedTree:
		if collection == "" {
			collection, rkey = "org.tangled.graph.collaborator", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
		}
		rec, eerr := encode(collection, rkey, map[string]any{"forged": true, "createdAt": r.clock()})
		if eerr != nil {
			return state{}, eerr
		}
		s.tree, s.records = s.tree.Copy(), maps.Clone(s.records)
		path := collection + "/" + rkey
		if _, err = s.tree.Insert([]byte(path), rec.CID); err == nil {
			_, err = s.tree.RootCID()
		}
		s.records[path] = rec
	}
	if err != nil {
		return state{}, fmt.Errorf("tamper with %s: %w", r.did, err)
	}
	return s, nil
}

// highS turns the s half of a compact signature into the order of the curve minus s, which plain ECDSA
// accepts as well.
func highS(key atcrypto.PrivateKey, sig []byte) []byte {
	// The orders of the two curves (SEC 2, version 2, sections 2.4.1 and 2.4.2).
	order := "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141"
	if _, ok := key.(*atcrypto.PrivateKeyP256); ok {
		order = "FFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551"
	}
	n, _ := new(big.Int).SetString(order, 16)
	out := slices.Clone(sig)
	n.Sub(n, new(big.Int).SetBytes(sig[32:64])).FillBytes(out[32:64])
	return out
}
