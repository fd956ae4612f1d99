package pds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"spindle/internal/tid"
)

// Errors of this package; errors.Is tells them apart.
var (
	ErrNoRepo    = errors.New("pds: no such repository")
	ErrNoRecord  = errors.New("pds: no such record")
	ErrBadRecord = errors.New("pds: the record is no atproto data")
	ErrBadPath   = errors.New("pds: collection or record key is malformed")
	ErrInactive  = errors.New("pds: the account is not active")
	ErrSwap      = errors.New("pds: the record is not the one to be replaced")
)

// Record is one record as it is stored.
type Record struct {
	Collection string
	Rkey       string
	CID        cid.Cid
	Bytes      []byte // DAG-CBOR
}

// JSON is the record as atproto JSON.
func (r Record) JSON() (json.RawMessage, error) {
	m, err := atdata.UnmarshalCBOR(r.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decode %s/%s: %w", r.Collection, r.Rkey, err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s/%s: %w", r.Collection, r.Rkey, err)
	}
	return b, nil
}

// Commit names a state of a repository.
type Commit struct {
	CID cid.Cid
	Rev string
}

// Repo is one record repository. Host.Create makes it; it is safe for concurrent use.
type Repo struct {
	did   syntax.DID
	tids  *tid.Source
	sink  Sink
	clock func() string // a datetime of now

	mu      sync.Mutex
	key     atcrypto.PrivateKey
	tree    mst.Tree
	records map[string]Record // by path
	head    signed
	status  string // empty: active; else takendown, deactivated, suspended, deleted
	tamper  Tamper
	frozen  *state
}

// signed is a commit with its encoding.
type signed struct {
	commit repo.Commit
	cid    cid.Cid
	bytes  []byte
}

// state is what a proof is cut from.
type state struct {
	head    signed
	tree    mst.Tree
	records map[string]Record
}

// DID is whose repository it is.
func (r *Repo) DID() syntax.DID { return r.did }

// Key is the signing key.
func (r *Repo) Key() atcrypto.PrivateKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key
}

// Head is the latest commit.
func (r *Repo) Head() Commit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Commit{CID: r.head.cid, Rev: r.head.commit.Rev}
}

// Put writes value at collection/rkey, creating or replacing, and tells the sink. value is anything whose
// JSON is an atproto object; $type is set to collection when absent. swap, if not empty, is the CID that
// the record must have now (ErrSwap).
func (r *Repo) Put(collection, rkey string, value any, swap string) (Record, Commit, error) {
	rec, err := encode(collection, rkey, value)
	if err != nil {
		return Record{}, Commit{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != "" {
		return Record{}, Commit{}, fmt.Errorf("%w: %s is %s", ErrInactive, r.did, r.status)
	}
	path := collection + "/" + rkey
	old, had := r.records[path]
	if swap != "" && (!had || old.CID.String() != swap) {
		return Record{}, Commit{}, fmt.Errorf("%w: %s", ErrSwap, path)
	}
	if _, err := r.tree.Insert([]byte(path), rec.CID); err != nil {
		return Record{}, Commit{}, fmt.Errorf("insert %s: %w", path, err)
	}
	r.records[path] = rec
	before := r.head.commit
	if err := r.sign(); err != nil {
		return Record{}, Commit{}, err
	}
	op := Create
	if had {
		op = Update
	}
	data, err := rec.JSON()
	if err != nil {
		return Record{}, Commit{}, err
	}
	if err := r.tell(Change{
		Operation: op, Collection: collection, Rkey: rkey, Record: data, CID: rec.CID.String(), Value: rec.CID, Prev: old.CID,
	}, before); err != nil {
		return Record{}, Commit{}, err
	}
	return rec, Commit{CID: r.head.cid, Rev: r.head.commit.Rev}, nil
}

// tell tells the sink of c, with what the commit before and the one after it say. The caller holds the lock.
func (r *Repo) tell(c Change, before repo.Commit) (err error) {
	c.DID, c.Rev, c.Since = r.did.String(), r.head.commit.Rev, before.Rev
	c.Commit, c.PrevData = r.head.cid, before.Data
	if c.Blocks, err = r.proof(c.Collection, c.Rkey); err != nil {
		return err
	}
	r.sink.Commit(c)
	return nil
}

// Create is Put under a fresh TID.
func (r *Repo) Create(collection string, value any) (Record, Commit, error) {
	return r.Put(collection, r.tids.Next(), value, "")
}

// Delete removes a record and tells the sink. A record that is not there is ErrNoRecord.
func (r *Repo) Delete(collection, rkey string) (Commit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != "" {
		return Commit{}, fmt.Errorf("%w: %s is %s", ErrInactive, r.did, r.status)
	}
	path := collection + "/" + rkey
	old, ok := r.records[path]
	if !ok {
		return Commit{}, fmt.Errorf("%w: %s", ErrNoRecord, path)
	}
	before := r.head.commit
	if _, err := r.tree.Remove([]byte(path)); err != nil {
		return Commit{}, fmt.Errorf("remove %s: %w", path, err)
	}
	delete(r.records, path)
	if err := r.sign(); err != nil {
		return Commit{}, err
	}
	if err := r.tell(Change{Operation: Delete, Collection: collection, Rkey: rkey, Prev: old.CID}, before); err != nil {
		return Commit{}, err
	}
	return Commit{CID: r.head.cid, Rev: r.head.commit.Rev}, nil
}

// Get returns one record.
func (r *Repo) Get(collection, rkey string) (Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.records[collection+"/"+rkey]
	if !ok {
		return Record{}, fmt.Errorf("%w: %s/%s", ErrNoRecord, collection, rkey)
	}
	return rec, nil
}

// List returns the records of a collection, by record key; an empty collection lists all.
func (r *Repo) List(collection string) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Record
	for path, rec := range r.records {
		if collection == "" || strings.HasPrefix(path, collection+"/") {
			out = append(out, rec)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Collection < b.Collection || a.Collection == b.Collection && a.Rkey < b.Rkey
	})
	return out
}

// SetKey signs the repository anew with key, as after a rotation; the directory is the caller's to change.
func (r *Repo) SetKey(key atcrypto.PrivateKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.key = key
	return r.sign()
}

// sign makes and signs a commit over the tree as it is. The caller holds the lock.
func (r *Repo) sign() error {
	root, err := r.tree.RootCID()
	if err != nil {
		return fmt.Errorf("root of the tree of %s: %w", r.did, err)
	}
	head, err := signCommit(repo.Commit{
		DID: r.did.String(), Version: repo.ATPROTO_REPO_VERSION, Data: *root, Rev: r.tids.Next(),
	}, r.key)
	if err != nil {
		return err
	}
	r.head = head
	return nil
}

func signCommit(c repo.Commit, key atcrypto.PrivateKey) (signed, error) {
	c.Sig = nil
	if err := c.Sign(key); err != nil {
		return signed{}, fmt.Errorf("sign a commit of %s: %w", c.DID, err)
	}
	return encodeCommit(c)
}

func encodeCommit(c repo.Commit) (signed, error) {
	var b bytes.Buffer
	if err := c.MarshalCBOR(&b); err != nil {
		return signed{}, fmt.Errorf("encode a commit of %s: %w", c.DID, err)
	}
	id, err := sum(b.Bytes())
	if err != nil {
		return signed{}, err
	}
	return signed{commit: c, cid: id, bytes: b.Bytes()}, nil
}

// encode makes the stored form of value.
func encode(collection, rkey string, value any) (Record, error) {
	if _, err := syntax.ParseNSID(collection); err != nil {
		return Record{}, fmt.Errorf("%w: %q", ErrBadPath, collection)
	}
	if _, err := syntax.ParseRecordKey(rkey); err != nil {
		return Record{}, fmt.Errorf("%w: %q", ErrBadPath, rkey)
	}
	// Through JSON, so that Go values, typed structs and decoded bodies all take the one road.
	text, err := json.Marshal(value)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	m, err := atdata.UnmarshalJSON(text)
	if err != nil || m == nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	if _, ok := m["$type"]; !ok {
		m["$type"] = collection
	}
	b, err := atdata.MarshalCBOR(m)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	id, err := sum(b)
	if err != nil {
		return Record{}, err
	}
	return Record{Collection: collection, Rkey: rkey, CID: id, Bytes: b}, nil
}

// sum is the CID of a DAG-CBOR block.
func sum(b []byte) (cid.Cid, error) {
	id, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(b)
	if err != nil {
		return cid.Undef, fmt.Errorf("hash a block: %w", err)
	}
	return id, nil
}
