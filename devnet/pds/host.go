package pds

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"

	"spindle/internal/clock"
	"spindle/internal/tid"
)

// The operations of a Change.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)

// Change is one record operation that was committed. Of a delete, Record and CID are empty.
type Change struct {
	DID, Rev, Operation, Collection, Rkey string
	Record                                json.RawMessage
	CID                                   string

	// Since is the revision before. Commit is the signed commit, Value the record after it and Prev the one before,
	// PrevData the root of the tree before; undefined where there is none.
	Since                         string
	Commit, Value, Prev, PrevData cid.Cid
	// Blocks is a CAR of the commit, the path to the record and the record, as Proof has it, tampering included.
	Blocks []byte
}

// Sink is told of everything that happens to the repositories of a host. It is called under the lock of
// the repository, so it must not call back.
type Sink interface {
	Commit(Change)
	Identity(did, handle string)
	Account(did string, active bool, status string)
}

// Config makes a Host.
type Config struct {
	// Sink hears of every change. Required.
	Sink Sink
	// Clock is the time of revisions and events. Required.
	Clock clock.Clock
	// Firehose answers com.atproto.sync.subscribeRepos; nil means that this host has none.
	Firehose http.Handler
}

// Host is a set of record repositories behind one endpoint. Make it with New; it is safe for concurrent
// use.
type Host struct {
	sink  Sink
	clock clock.Clock
	tids  *tid.Source
	fire  http.Handler

	mu      sync.Mutex
	repos   map[syntax.DID]*Repo
	handles map[string]syntax.DID
	tokens  map[syntax.DID]string
}

// New returns a host without repositories.
func New(c Config) *Host {
	return &Host{
		sink: c.Sink, clock: c.Clock, tids: tid.New(c.Clock), fire: c.Firehose,
		repos: map[syntax.DID]*Repo{}, handles: map[string]syntax.DID{}, tokens: map[syntax.DID]string{},
	}
}

// Create opens an empty repository for did, signed by key. handle may be empty. token is what the account
// presents as password and as bearer; empty means that nobody can write over the wire.
func (h *Host) Create(did syntax.DID, handle string, key atcrypto.PrivateKey, token string) (*Repo, error) {
	r := &Repo{
		did: did, tids: h.tids, sink: h.sink, key: key, tree: mst.NewEmptyTree(), records: map[string]Record{},
		clock: func() string { return Datetime(h.clock) },
	}
	if err := r.sign(); err != nil {
		return nil, err
	}
	if err := h.Adopt(r, handle, token); err != nil {
		return nil, err
	}
	return r, nil
}

// Adopt takes a repository that was made by another host, as when an account moves. The directory is the
// caller's to change.
func (h *Host) Adopt(r *Repo, handle, token string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.repos[r.did] != nil {
		return fmt.Errorf("pds: %s is here already", r.did)
	}
	if handle != "" {
		if _, taken := h.handles[handle]; taken {
			return fmt.Errorf("pds: the handle %s is taken", handle)
		}
		h.handles[handle] = r.did
	}
	h.repos[r.did] = r
	if token != "" {
		h.tokens[r.did] = token
	}
	h.sink.Identity(r.did.String(), handle)
	h.sink.Account(r.did.String(), true, "")
	return nil
}

// Rename gives the account did another handle here. Nothing is told to the sink.
func (h *Host) Rename(did syntax.DID, handle string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.repos[did] == nil {
		return fmt.Errorf("%w: %s", ErrNoRepo, did)
	}
	if _, taken := h.handles[handle]; taken {
		return fmt.Errorf("pds: the handle %s is taken", handle)
	}
	maps.DeleteFunc(h.handles, func(_ string, d syntax.DID) bool { return d == did })
	h.handles[handle] = did
	return nil
}

// Drop forgets a repository: this host answers for it no more. Nothing is told to the sink.
func (h *Host) Drop(did syntax.DID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.repos, did)
	delete(h.tokens, did)
	maps.DeleteFunc(h.handles, func(_ string, d syntax.DID) bool { return d == did })
}

// Repo returns the repository of did.
func (h *Host) Repo(did syntax.DID) (*Repo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[did]
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoRepo, did)
	}
	return r, nil
}

// Resolve turns a handle or a DID into the DID of a repository here.
func (h *Host) Resolve(name string) (syntax.DID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if did, ok := h.handles[name]; ok {
		return did, true
	}
	did := syntax.DID(name)
	return did, h.repos[did] != nil
}

// DIDs lists the repositories here, in order.
func (h *Host) DIDs() []syntax.DID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.repos))
}

// SetStatus makes an account inactive with one of the words takendown, suspended, deactivated, deleted, or
// active again with the empty word, and tells the sink. An inactive account's records cannot be read.
func (h *Host) SetStatus(did syntax.DID, status string) error {
	r, err := h.Repo(did)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
	h.sink.Account(did.String(), status == "", status)
	return nil
}

// holds reports whether token is the one of did.
func (h *Host) holds(did syntax.DID, token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := h.tokens[did]
	return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(token)) == 1
}

// owner finds whose token it is.
func (h *Host) owner(token string) (*Repo, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for did, want := range h.tokens {
		if subtle.ConstantTimeCompare([]byte(want), []byte(token)) == 1 {
			return h.repos[did], true
		}
	}
	return nil, false
}

// Datetime is now in the form that records and events use (https://atproto.com/specs/lexicon#datetime).
func Datetime(c clock.Clock) string {
	return c.Now().UTC().Format("2006-01-02T15:04:05.000Z")
}
