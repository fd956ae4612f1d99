package knot

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/identity"
	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
)

// Collections of the records read here.
const (
	manifestCollection     = "org.tangled.repo.manifest"
	declarationCollection  = "org.tangled.repo.declaration"
	collaboratorCollection = "org.tangled.graph.collaborator"
	manifestRkey           = "self"
)

// Directory resolves DIDs. *identity.Directory is one.
type Directory interface {
	Lookup(ctx context.Context, did string) (*identity.Identity, error)
}

// Prover fetches records with the proof that their owner signed them. *identity.Prover is one.
type Prover interface {
	// RecordAt proves one record; host "" means the PDS of did's document.
	RecordAt(ctx context.Context, host, did, collection, rkey string) (identity.Proven, error)
	// List proves the records of a collection, at most limit.
	List(ctx context.Context, did, host, collection string, limit int) ([]identity.Proven, error)
}

// Binding is a repository that is what it says it is: DID document, manifest and declaration point at each
// other. It was true when it was read; bind again on a change and once a day.
type Binding struct {
	Repo    string // DID of the repository, its identity
	Knot    string // host of the knot, with the port if there is one
	KnotURL string // origin of the knot
	Owner   string // DID of the owner
	Rkey    string // record key of the owner's declaration
	Name    string // for display only: two repositories may have the same

	DefaultBranch string // short name; empty if the manifest names none that git would accept
	Spindle       string // the chosen spindle as the manifest has it, a DID or a host name; empty for none

	ManifestCID    string // of the signed manifest
	ManifestRev    string // revision of the repository's records it was read at
	DeclarationCID string // of the signed declaration
	DeclarationRev string // revision of the owner's records it was read at
}

// Source is where the bound repository's objects come from.
func (b Binding) Source() Source { return Source{Repo: b.Repo, KnotURL: b.KnotURL} }

// Chooses says whether the manifest names the spindle at host ("ci.example.com", or "localhost:6555"),
// by that name or by its did:web.
func (b Binding) Chooses(host string) bool {
	host = strings.ToLower(host)
	named := strings.ToLower(b.Spindle)
	if web, ok := strings.CutPrefix(named, "did:web:"); ok {
		named = strings.ReplaceAll(web, "%3a", ":")
	}
	return named != "" && named == host
}

// Reasons of a BindError: a closed set, fit for a metric label.
const (
	ReasonRepo        = "repo"        // the DID is not acceptable, gone, or its document unusable or without a knot
	ReasonManifest    = "manifest"    // no proven, valid manifest on the knot that the DID document names
	ReasonOwner       = "owner"       // the manifest names an owner or a declaration that cannot be one
	ReasonDeclaration = "declaration" // no proven, valid declaration at the place that the manifest names
	ReasonMismatch    = "mismatch"    // the declaration is of another repository
)

// BindError says why a repository is not bound. It is an ErrBind.
type BindError struct {
	Repo      string // the DID asked about
	Reason    string // one of the Reason constants
	Temporary bool   // somebody could not be reached: nothing is decided
	Err       error  // the cause; may be nil
}

// Error implements error.
func (e *BindError) Error() string {
	s := fmt.Sprintf("knot: repository %q not bound: %s", cut(e.Repo), e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// sentence is the error for people.
func (e *BindError) sentence() string {
	if e.Temporary {
		return "somebody could not be asked whose repository this is"
	}
	switch e.Reason {
	case ReasonRepo:
		return "the DID of the repository is gone, or its document names no usable knot"
	case ReasonManifest:
		return "the knot has no manifest that the repository has signed"
	case ReasonOwner:
		return "the manifest of the repository names no possible owner"
	case ReasonDeclaration:
		return "the owner that the manifest names has not declared this repository"
	}
	return "the owner's declaration is of another repository"
}

// Is makes every BindError an ErrBind.
func (e *BindError) Is(target error) bool { return target == ErrBind }

// Unwrap gives the cause.
func (e *BindError) Unwrap() error { return e.Err }

// Bind proves that the repository with the DID repo is what it says: its DID document names a knot; the
// manifest there, signed by the repository, names an owner and a declaration; and that declaration, signed
// by the owner, names the repository. Whatever does not hold is a *BindError.
func (c *Client) Bind(ctx context.Context, repo string) (Binding, error) {
	fail := func(reason string, err error) (Binding, error) {
		temporary := err != nil && identity.Temporary(err)
		return Binding{}, &BindError{Repo: repo, Reason: reason, Temporary: temporary, Err: err}
	}
	origin, err := c.knotOf(ctx, repo)
	if err != nil {
		return fail(ReasonRepo, err)
	}
	host, err := url.Parse(origin)
	if err != nil {
		return fail(ReasonRepo, err)
	}
	proof, err := c.cfg.Prover.RecordAt(ctx, origin, repo, manifestCollection, manifestRkey)
	if err != nil {
		return fail(ReasonManifest, err)
	}
	m, err := view[orgtangled.RepoManifest](c, proof)
	if err != nil {
		return fail(ReasonManifest, err)
	}
	rkey, err := declarationKey(m)
	if err != nil {
		return fail(ReasonOwner, err)
	}
	claim, err := c.cfg.Prover.RecordAt(ctx, "", m.Owner, declarationCollection, rkey)
	if err != nil {
		return fail(ReasonDeclaration, err)
	}
	d, err := view[orgtangled.RepoDeclaration](c, claim)
	if err != nil {
		return fail(ReasonDeclaration, err)
	}
	if d.Repo != repo {
		return fail(ReasonMismatch, nil)
	}
	b := Binding{
		Repo: repo, Knot: host.Host, KnotURL: origin, Owner: m.Owner, Rkey: rkey, Name: m.Name,
		ManifestCID: proof.CID, ManifestRev: proof.Rev, DeclarationCID: claim.CID, DeclarationRev: claim.Rev,
	}
	if m.DefaultBranch != nil && checkRef("refs/heads/"+*m.DefaultBranch) == nil {
		b.DefaultBranch = *m.DefaultBranch
	}
	if m.Spindle != nil {
		b.Spindle = *m.Spindle
	}
	return b, nil
}

// Locate is where the objects of the repository with the DID repo are: the knot that its DID document
// names now. It proves nothing about an owner; Bind does. Errors: *BindError.
func (c *Client) Locate(ctx context.Context, repo string) (Source, error) {
	origin, err := c.knotOf(ctx, repo)
	if err != nil {
		return Source{}, &BindError{Repo: repo, Reason: ReasonRepo, Temporary: identity.Temporary(err), Err: err}
	}
	return Source{Repo: repo, KnotURL: origin}, nil
}

// knotOf is the origin of the knot that repo's DID document names.
func (c *Client) knotOf(ctx context.Context, repo string) (string, error) {
	id, err := c.cfg.Directory.Lookup(ctx, repo)
	if err != nil {
		return "", err
	}
	origin, err := id.KnotEndpoint()
	if err != nil {
		return "", err
	}
	if _, err := parseOrigin(origin, c.cfg.Dev); err != nil {
		return "", err
	}
	return origin, nil
}

// declarationKey is the record key of the declaration that m names, by key or by at-uri.
func declarationKey(m *orgtangled.RepoManifest) (string, error) {
	if _, err := syntax.ParseDID(m.Owner); err != nil {
		return "", fmt.Errorf("%w: owner: %w", ErrInvalid, err)
	}
	rkey := m.Declaration
	if strings.HasPrefix(rkey, "at://") {
		u, err := syntax.ParseATURI(rkey)
		if err != nil {
			return "", fmt.Errorf("%w: declaration: %w", ErrInvalid, err)
		}
		if u.Authority().String() != m.Owner || u.Collection().String() != declarationCollection {
			return "", fmt.Errorf("%w: the declaration named is not one of the owner's", ErrInvalid)
		}
		rkey = u.RecordKey().String()
	}
	if _, err := syntax.ParseRecordKey(rkey); err != nil {
		return "", fmt.Errorf("%w: declaration: %w", ErrInvalid, err)
	}
	return rkey, nil
}

// view decodes a proven record after it has been checked against its lexicon.
func view[T any, P interface {
	*T
	unmarshaler
}](c *Client, p identity.Proven) (*T, error) {
	r, err := lexicons.FromCBOR(p.CBOR)
	if err != nil {
		return nil, err
	}
	if err := r.Validate(c.catalog); err != nil {
		return nil, err
	}
	return lexicons.Decode[T, P](r)
}

// Collaborators lists the DIDs that the repository's own records name as collaborators: each record is
// proven, and its key is the DID. Keys that are no DID are left out. A knot can leave collaborators out but
// cannot add any. Errors: *BindError for a repository whose document names no knot, and those of the prover.
func (c *Client) Collaborators(ctx context.Context, repo string) ([]string, error) {
	src, err := c.Locate(ctx, repo)
	if err != nil {
		return nil, err
	}
	list, err := c.cfg.Prover.List(ctx, repo, src.KnotURL, collaboratorCollection, c.lim.Collaborators)
	if err != nil {
		return nil, fmt.Errorf("list collaborators of %s: %w", repo, err)
	}
	var out []string
	for _, p := range list {
		if _, err := syntax.ParseDID(p.Rkey); err != nil {
			continue
		}
		if _, err := view[orgtangled.GraphCollaborator](c, p); err == nil {
			out = append(out, p.Rkey)
		}
	}
	return out, nil
}
