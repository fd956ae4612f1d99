package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/internal/clock"
	"spindle/internal/netguard"
)

const (
	fetchTimeout = 20 * time.Second
	maxFuture    = 5 * time.Minute
	maxErrorBody = 4 << 10
)

// ProverConfig says how proofs are fetched. Directory and Client are required.
type ProverConfig struct {
	// Directory resolves whose record it is.
	Directory *Directory
	// Client is a client made by a netguard.Guard.
	Client *http.Client
	// Bulk is a client for whole repos, which take longer. Nil means Client.
	Bulk *http.Client
	// Clock is the present, to refuse revisions from the future. Nil means the real one.
	Clock clock.Clock
	// PerHost is how many Visits may be at one host at a time. Below 1 means 4.
	PerHost int
	// Limits bound whole repos.
	Limits RepoLimits
	// Dir is where large repos lie while they are read, in files without a name. Empty means the system's folder
	// for such.
	Dir string
}

// Prover fetches records with the proof that their owner signed them
// (https://atproto.com/specs/repository). It is safe for concurrent use.
type Prover struct {
	dir    *Directory
	client *http.Client
	bulk   *http.Client
	clock  clock.Clock
	hosts  *hosts
	limits RepoLimits
	dirOf  string
}

// NewProver returns a prover for c.
func NewProver(c ProverConfig) *Prover {
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.PerHost < 1 {
		c.PerHost = 4
	}
	if c.Bulk == nil {
		c.Bulk = c.Client
	}
	return &Prover{
		dir: c.Directory, client: c.Client, bulk: c.Bulk, clock: c.Clock, hosts: newHosts(c.Clock, c.PerHost),
		limits: c.Limits.withDefaults(), dirOf: c.Dir,
	}
}

// Proven is a record that its owner's signed repo holds.
type Proven struct {
	DID        string // whose repo
	Collection string // the record's collection, an NSID
	Rkey       string // its key
	CBOR       []byte // the record, DAG-CBOR; its content is the owner's and still unchecked
	CID        string // of CBOR
	Rev        string // the repo's revision (a TID): what was true then. Refuse one lower than seen before
}

// Record fetches one record from the PDS that did's document names. Errors: ErrAbsent, ErrUnproven,
// ErrProof, ErrSignature, ErrFutureRev, and those of Directory.Lookup.
func (p *Prover) Record(ctx context.Context, did, collection, rkey string) (Proven, error) {
	return p.RecordAt(ctx, "", did, collection, rkey)
}

// RecordAt is Record with the host to ask: an origin ("https://knot.example.com"). The host need not be
// trusted, since the key comes from did's document. A repo DID's records live on its knot.
func (p *Prover) RecordAt(ctx context.Context, host, did, collection, rkey string) (Proven, error) {
	if r, ok, err := Held(ctx, did, collection, rkey); ok {
		if err != nil {
			return Proven{}, fmt.Errorf("prove %s/%s of %s: %w", collection, rkey, did, err)
		}
		return r, nil
	}
	r, err := p.record(ctx, host, did, collection, rkey)
	// A new key shows as a signature that fails, a new PDS as a host that knows nothing of the account any more:
	// ask once more with a fresh document.
	moved := errors.Is(err, ErrSignature) || host == "" && errors.Is(err, ErrUnproven)
	if moved && p.dir.Purge(ctx, did) {
		r, err = p.record(ctx, host, did, collection, rkey)
	}
	if err != nil {
		return Proven{}, fmt.Errorf("prove %s/%s of %s: %w", collection, rkey, did, err)
	}
	return r, nil
}

func (p *Prover) record(ctx context.Context, host, did, collection, rkey string) (Proven, error) {
	if _, err := syntax.ParseNSID(collection); err != nil {
		return Proven{}, fmt.Errorf("%w: collection: %w", ErrProof, err)
	}
	if _, err := syntax.ParseRecordKey(rkey); err != nil {
		return Proven{}, fmt.Errorf("%w: record key: %w", ErrProof, err)
	}
	id, host, err := p.owner(ctx, host, did)
	if err != nil {
		return Proven{}, err
	}
	body, err := p.get(ctx, host, "com.atproto.sync.getRecord", url.Values{"did": {did}, "collection": {collection}, "rkey": {rkey}}, maxCAR)
	if err != nil {
		return Proven{}, err
	}
	cbor, c, rev, err := p.prove(ctx, id, body, collection+"/"+rkey)
	if errors.Is(err, ErrAbsent) {
		return Proven{}, &Absence{DID: did, Collection: collection, Rkey: rkey, Rev: rev}
	}
	if err != nil {
		return Proven{}, err
	}
	return Proven{DID: did, Collection: collection, Rkey: rkey, CBOR: cbor, CID: c, Rev: rev}, nil
}

// owner resolves did and settles the host to ask.
func (p *Prover) owner(ctx context.Context, host, did string) (*Identity, string, error) {
	id, err := p.dir.Lookup(ctx, did)
	if err != nil {
		return nil, "", err
	}
	if host == "" {
		host, err = id.PDS()
	} else {
		host, err = checkEndpoint(host, p.dir.dev)
	}
	return id, host, err
}

// prove checks the whole chain: blocks, commit, owner, signature, revision, tree path, record.
func (p *Prover) prove(ctx context.Context, id *Identity, body []byte, path string) (cbor []byte, c, rev string, err error) {
	proof, err := readCAR(ctx, body)
	if err != nil {
		return nil, "", "", err
	}
	if err := p.signed(id, proof.commit); err != nil {
		return nil, "", "", err
	}
	at, err := findInTree(proof.block, proof.commit.Data, []byte(path))
	if err != nil {
		return nil, "", proof.commit.Rev, err
	}
	record, ok := proof.blocks[at]
	if !ok || !repoCID(at) {
		return nil, "", "", fmt.Errorf("%w: record block is missing", ErrProof)
	}
	return record, at.String(), proof.commit.Rev, nil
}

// signed checks that a commit is id's, by its key, and not from the future.
func (p *Prover) signed(id *Identity, c *repo.Commit) error {
	if c.DID != id.DID {
		return fmt.Errorf("%w: the repo of %q", ErrProof, c.DID)
	}
	key, err := id.PublicKey()
	if err != nil {
		return err
	}
	if err := c.VerifySignature(key); err != nil {
		return ErrSignature
	}
	if t := syntax.TID(c.Rev).Time(); t.After(p.clock.Now().Add(maxFuture)) {
		return fmt.Errorf("%w: %s", ErrFutureRev, c.Rev)
	}
	return nil
}

// get calls a query of host and returns its body, at most max bytes.
func (p *Prover) get(ctx context.Context, host, nsid string, q url.Values, max int64) ([]byte, error) {
	if err := p.hosts.resting(host); err != nil {
		return nil, err
	}
	if err := p.hosts.come(ctx, host); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/xrpc/"+nsid+"?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadDocument, err)
	}
	req.Header.Set("User-Agent", "spindle")
	resp, err := p.client.Do(req)
	if errors.Is(err, netguard.ErrDenied) {
		return nil, fmt.Errorf("%w: %w", ErrBadDocument, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = resp.Body.Close() }() // what mattered has been read
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		p.hosts.rest(host, resp)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp, q.Get("did")+q.Get("repo"))
	}
	b, err := netguard.ReadLimited(resp.Body, max)
	if errors.Is(err, netguard.ErrTooLarge) {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return b, nil
}

// refusal names the answer of a host that sent no proof of what did has.
func refusal(resp *http.Response, did string) error {
	code := resp.StatusCode
	if code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500 && code != http.StatusNotImplemented {
		return fmt.Errorf("%w: status %d", ErrUnreachable, code)
	}
	var e struct {
		Error string `json:"error"`
	}
	b, err := netguard.ReadLimited(resp.Body, maxErrorBody)
	if err != nil || json.Unmarshal(b, &e) != nil || !printable(e.Error, 64) {
		e.Error = noErrorName
	}
	if status, ok := inactive[e.Error]; ok {
		return &InactiveError{DID: did, Status: status}
	}
	return &hostError{code: code, name: e.Error}
}
