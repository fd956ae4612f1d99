package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"

	"spindle/internal/netguard"
)

// RepoLimits bound what a whole repo may be. A zero field means its default.
type RepoLimits struct {
	// Bytes is the largest CAR file. Default 64 MiB, at most 1 GiB.
	Bytes int64
	// Blocks is how many blocks it may have. Default 262,144, which is an index of 10 MiB.
	Blocks int
	// Record is the largest block. Default 1 MiB.
	Record int
}

func (l RepoLimits) withDefaults() RepoLimits {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 20
	}
	l.Bytes = min(l.Bytes, 1<<30)
	if l.Blocks <= 0 {
		l.Blocks = 1 << 18
	}
	if l.Record <= 0 {
		l.Record = 1 << 20
	}
	return l
}

// Repo is the whole of a DID's record repo as it was at one signed revision: every node of its tree is here and in
// order, so that what it does not hold is proven to be absent. Its records are read one by one from where they are
// kept. Close it. It is safe for concurrent use until then.
type Repo struct {
	did, rev string
	root     cid.Cid
	blocks   *spool
}

// DID is whose repo it is.
func (r *Repo) DID() string { return r.did }

// Rev is its revision, a TID.
func (r *Repo) Rev() string { return r.rev }

// Close frees what the repo takes.
func (r *Repo) Close() error { return r.blocks.Close() }

// Record is one record, or an *Absence.
func (r *Repo) Record(collection, rkey string) (Proven, error) {
	at, err := findInTree(r.blocks.block, r.root, []byte(collection+"/"+rkey))
	if errors.Is(err, ErrAbsent) {
		return Proven{}, &Absence{DID: r.did, Collection: collection, Rkey: rkey, Rev: r.rev}
	}
	if err != nil {
		return Proven{}, err
	}
	return r.proven(collection, rkey, at)
}

func (r *Repo) proven(collection, rkey string, at cid.Cid) (Proven, error) {
	b, err := r.blocks.block(at)
	if err != nil {
		return Proven{}, err
	}
	if b == nil {
		return Proven{}, fmt.Errorf("%w: block of record %s/%s is missing", ErrProof, collection, rkey)
	}
	return Proven{DID: r.did, Collection: collection, Rkey: rkey, CBOR: bytes.Clone(b), CID: at.String(), Rev: r.rev}, nil
}

// Records yields the records of the named collections in the order of the tree. An error of yield ends it.
func (r *Repo) Records(collections []string, yield func(Proven) error) error {
	want := map[string]bool{}
	for _, c := range collections {
		want[c] = true
	}
	return walkTree(r.blocks.block, r.root, len(r.blocks.index), func(key []byte, at cid.Cid) error {
		collection, rkey, ok := strings.Cut(string(key), "/")
		if !ok || !want[collection] {
			return nil
		}
		if _, err := syntax.ParseRecordKey(rkey); err != nil {
			return fmt.Errorf("%w: record key: %w", ErrProof, err)
		}
		p, err := r.proven(collection, rkey, at)
		if err != nil {
			return err
		}
		return yield(p)
	})
}

// Repo fetches did's whole repo with com.atproto.sync.getRepo and verifies it: the hash of each block, the commit's
// DID, signature and revision, and the whole tree. host "" means the PDS of did's document. Errors: ErrUnsupported
// for a host that has no such method, ErrTooBig for a repo above the limits, ErrUnproven, ErrProof, ErrSignature,
// ErrFutureRev, and those of Directory.Lookup.
func (p *Prover) Repo(ctx context.Context, did, host string) (*Repo, error) {
	r, err := p.repo(ctx, did, host)
	// As with single records, a new key or PDS shows as a signature that fails.
	moved := errors.Is(err, ErrSignature) || host == "" && errors.Is(err, ErrUnproven) && !errors.Is(err, ErrUnsupported)
	if moved && p.dir.Purge(ctx, did) {
		r, err = p.repo(ctx, did, host)
	}
	if err != nil {
		return nil, fmt.Errorf("read the repo of %s: %w", did, err)
	}
	return r, nil
}

func (p *Prover) repo(ctx context.Context, did, host string) (*Repo, error) {
	id, at, err := p.owner(ctx, host, did)
	if err != nil {
		return nil, err
	}
	body, err := p.open(ctx, at, "com.atproto.sync.getRepo", url.Values{"did": {did}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // what mattered has been read
	return p.ReadRepo(id, body)
}

// ReadRepo verifies a whole repo of id that comes as a CAR file, as Prover.Repo does with what it fetched.
func (p *Prover) ReadRepo(id *Identity, body io.Reader) (*Repo, error) {
	blocks, root, err := readSpool(body, p.dirOf, p.limits)
	if err != nil {
		return nil, err
	}
	r := &Repo{did: id.DID, blocks: blocks}
	if err := p.verify(r, id, root); err != nil {
		return nil, errors.Join(err, blocks.Close())
	}
	return r, nil
}

// verify checks the commit at root and the whole tree below it.
func (p *Prover) verify(r *Repo, id *Identity, root cid.Cid) error {
	raw, err := r.blocks.block(root)
	if err != nil {
		return err
	}
	if raw == nil {
		return fmt.Errorf("%w: the commit is missing", ErrProof)
	}
	var c repo.Commit
	if err := c.UnmarshalCBOR(bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("%w: commit: %w", ErrProof, err)
	}
	if err := c.VerifyStructure(); err != nil {
		return fmt.Errorf("%w: commit: %w", ErrProof, err)
	}
	if !repoCID(c.Data) {
		return fmt.Errorf("%w: tree root of foreign kind", ErrProof)
	}
	if err := p.signed(id, &c); err != nil {
		return err
	}
	r.rev, r.root = c.Rev, c.Data
	return walkTree(r.blocks.block, r.root, len(r.blocks.index), func([]byte, cid.Cid) error { return nil })
}

// LatestRev asks did's host for the revision of its repo. It is the host's word, good for leaving out a fetch that
// would bring nothing new, and for nothing else.
func (p *Prover) LatestRev(ctx context.Context, did, host string) (string, error) {
	_, at, err := p.owner(ctx, host, did)
	if err != nil {
		return "", fmt.Errorf("ask for the revision of %s: %w", did, err)
	}
	b, err := p.get(ctx, at, "com.atproto.sync.getLatestCommit", url.Values{"did": {did}}, maxErrorBody)
	if rest := p.hosts.resting(at); rest != nil && err != nil {
		err = rest
	}
	if err != nil {
		return "", fmt.Errorf("ask for the revision of %s: %w", did, err)
	}
	var out struct {
		Rev string `json:"rev"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return "", fmt.Errorf("ask for the revision of %s: %w: %w", did, ErrProof, err)
	}
	if _, err := syntax.ParseTID(out.Rev); err != nil {
		return "", fmt.Errorf("ask for the revision of %s: %w: %w", did, ErrProof, err)
	}
	return out.Rev, nil
}

// Host is the origin of the server that holds did's records: its PDS, or for a repository the knot.
func (p *Prover) Host(ctx context.Context, did string, knot bool) (string, error) {
	id, err := p.dir.Lookup(ctx, did)
	if err != nil {
		return "", err
	}
	if knot {
		return id.KnotEndpoint()
	}
	return id.PDS()
}

// open calls a query of host and returns the body of its answer, which may be long.
func (p *Prover) open(ctx context.Context, host, nsid string, q url.Values) (io.ReadCloser, error) {
	if err := p.hosts.resting(host); err != nil {
		return nil, err
	}
	if err := p.hosts.come(ctx, host); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/xrpc/"+nsid+"?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadDocument, err)
	}
	req.Header.Set("User-Agent", "spindle")
	req.Header.Set("Accept", "application/vnd.ipld.car")
	resp, err := p.bulk.Do(req)
	if errors.Is(err, netguard.ErrDenied) {
		return nil, fmt.Errorf("%w: %w", ErrBadDocument, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if resp.StatusCode == http.StatusOK && resp.ContentLength <= p.limits.Bytes {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }() // nothing of it is wanted
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		p.hosts.rest(host, resp)
		if err := p.hosts.resting(host); err != nil {
			return nil, err
		}
	}
	if resp.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("%w: CAR of %d bytes", ErrTooBig, resp.ContentLength)
	}
	return nil, refusal(resp, q.Get("did"))
}

// walkTree visits every key of the tree below root in order, and refuses a tree that is not exactly one: each node
// is canonical, on its level, within the bounds that its parent sets, and visited at most once, so that the blocks
// bound the work whatever they say. An error of visit ends the walk.
func walkTree(block blockFunc, root cid.Cid, blocks int, visit func(key []byte, at cid.Cid) error) error {
	w := walk{block: block, left: blocks, visit: visit}
	return w.node(root, -1, true, nil, nil)
}

type walk struct {
	block blockFunc
	left  int // nodes that may still be visited
	visit func(key []byte, at cid.Cid) error
}

// maxHeight is the highest level of a key: a hash of 256 bits has no more than 128 pairs of leading zeros.
const maxHeight = 128

func (w *walk) node(at cid.Cid, height int, isRoot bool, low, high []byte) error {
	if w.left--; w.left < 0 {
		return fmt.Errorf("%w: tree names nodes again and again", ErrProof)
	}
	n, err := loadNode(w.block, at, height, isRoot)
	if err != nil {
		return err
	}
	if err := n.within(low, high); err != nil {
		return err
	}
	if n.height > maxHeight {
		return fmt.Errorf("%w: tree is too high", ErrProof)
	}
	from := low
	for i, link := range n.links {
		to := high
		if i < len(n.keys) {
			to = n.keys[i]
		}
		if link != nil {
			if err := w.node(*link, n.height-1, false, from, to); err != nil {
				return err
			}
		}
		if i == len(n.keys) {
			break
		}
		if !mst.IsValidKey(n.keys[i]) {
			return fmt.Errorf("%w: tree key", ErrProof)
		}
		if err := w.visit(n.keys[i], n.values[i]); err != nil {
			return err
		}
		from = n.keys[i]
	}
	return nil
}
