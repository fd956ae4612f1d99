package devnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/devnet/knot"
	"spindle/devnet/pds"
	"spindle/devnet/plc"
)

// The records that make a repository.
const (
	Declaration  = "org.tangled.repo.declaration"
	Manifest     = "org.tangled.repo.manifest"
	Collaborator = "org.tangled.graph.collaborator"
	OldRepo      = "sh.tangled.repo"
	self         = "self" // record key of the manifest
)

// ErrRepoName refuses a name that would not do in a URL.
var ErrRepoName = errors.New("devnet: a repository name has letters, digits, dots, dashes and underscores only")

var repoName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// RepoOptions says what CreateRepo makes.
type RepoOptions struct {
	// Spindle is the host name or did:web of the spindle that the manifest names. Empty: none.
	Spindle string
	// DefaultBranch is a short branch name. Empty means main.
	DefaultBranch string
	// Description is for people.
	Description string
	// Older adds a sh.tangled.repo record to the owner's PDS.
	Older bool
	// Knot is where the repository lives. Nil means the first knot.
	Knot *Knot
}

// Repo is a git repository with its DID and record repository.
type Repo struct {
	DID       syntax.DID
	Owner     *Account
	Name      string
	Rkey      string // record key of the declaration
	Git       *knot.Repo
	Source    *Repo // of a fork: what it was forked from
	*pds.Repo       // its record repository

	net  *Net
	knot *Knot
}

// CreateRepo makes an empty repository: a DID with a new P-256 key, the bare git repository, the manifest
// in its record repository, and the declaration in the owner's.
func (n *Net) CreateRepo(ctx context.Context, owner *Account, name string, opts RepoOptions) (*Repo, error) {
	return n.create(ctx, owner, name, opts, nil)
}

// Fork makes a copy of source that belongs to owner. The manifest names the source. Options that are not
// set are those of the source, but for the spindle, which is nobody's unless it is asked for.
func (n *Net) Fork(ctx context.Context, owner *Account, source *Repo, opts RepoOptions) (*Repo, error) {
	if opts.DefaultBranch == "" {
		opts.DefaultBranch = source.Git.DefaultBranch
	}
	if opts.Knot == nil {
		opts.Knot = source.knot
	}
	return n.create(ctx, owner, source.Name, opts, source)
}

func (n *Net) create(ctx context.Context, owner *Account, name string, opts RepoOptions, source *Repo) (*Repo, error) {
	if !repoName.MatchString(name) {
		return nil, fmt.Errorf("%w: %q", ErrRepoName, name)
	}
	if opts.DefaultBranch == "" {
		opts.DefaultBranch = "main"
	}
	if opts.Knot == nil {
		opts.Knot = n.Knot()
	}
	key, err := atcrypto.GeneratePrivateKeyP256()
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	r := &Repo{Owner: owner, Name: name, Rkey: n.tids.Next(), Source: source, net: n, knot: opts.Knot}
	// The knot hosts the record repository as well, so it is the PDS of the repository's DID.
	r.DID, err = n.register(key, "", knotServices(opts.Knot)...)
	if err != nil {
		return nil, err
	}
	if r.Repo, err = opts.Knot.Records.Create(r.DID, "", key, ""); err != nil {
		return nil, err
	}
	var from *knot.Repo
	if source != nil {
		from = source.Git
	}
	r.Git, err = opts.Knot.Create(ctx, knot.Repo{DID: r.DID, Owner: owner.DID, Name: name, DefaultBranch: opts.DefaultBranch}, from)
	if err != nil {
		return nil, err
	}
	return r, r.declare(opts)
}

func knotServices(k *Knot) []plc.Service {
	return []plc.Service{
		{ID: plc.PDSService, Type: plc.PDSType, Endpoint: k.Server.URL()},
		{ID: plc.KnotService, Type: plc.KnotType, Endpoint: k.Server.URL()},
	}
}

// declare writes the records of a new repository.
func (r *Repo) declare(opts RepoOptions) error {
	now := pds.Datetime(r.net.cfg.Clock)
	manifest := map[string]any{
		"owner": r.Owner.DID.String(), "declaration": "at://" + r.Owner.DID.String() + "/" + Declaration + "/" + r.Rkey,
		"name": r.Name, "defaultBranch": r.Git.DefaultBranch, "createdAt": now,
	}
	old := map[string]any{"name": r.Name, "knot": r.knot.Name, "repoDid": r.DID.String(), "createdAt": now}
	if opts.Spindle != "" {
		manifest["spindle"], old["spindle"] = opts.Spindle, opts.Spindle
	}
	if opts.Description != "" {
		manifest["description"], old["description"] = opts.Description, opts.Description
	}
	if r.Source != nil {
		manifest["source"], old["source"] = r.Source.DID.String(), r.Source.DID.String()
	}
	if _, _, err := r.Put(Manifest, self, manifest, ""); err != nil {
		return err
	}
	declaration := map[string]any{"repo": r.DID.String(), "createdAt": now}
	if _, _, err := r.Owner.Put(Declaration, r.Rkey, declaration, ""); err != nil {
		return err
	}
	if !opts.Older {
		return nil
	}
	_, _, err := r.Owner.Put(OldRepo, r.Rkey, old, "")
	return err
}

// UpdateManifest changes the manifest as f does; a field set to nil is taken out.
func (r *Repo) UpdateManifest(f func(map[string]any)) error {
	rec, err := r.Get(Manifest, self)
	if err != nil {
		return err
	}
	text, err := rec.JSON()
	if err != nil {
		return err
	}
	m := map[string]any{}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	f(m)
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
	}
	_, _, err = r.Put(Manifest, self, m, "")
	return err
}

// SetSpindle chooses another spindle; empty takes the choice back.
func (r *Repo) SetSpindle(host string) error {
	return r.UpdateManifest(func(m map[string]any) {
		m["spindle"] = host
		if host == "" {
			m["spindle"] = nil
		}
	})
}

// AddCollaborator lets a push to the repository.
func (r *Repo) AddCollaborator(a *Account) error {
	_, _, err := r.Put(Collaborator, a.DID.String(), map[string]any{"createdAt": pds.Datetime(r.net.cfg.Clock)}, "")
	return err
}

// RemoveCollaborator takes that back.
func (r *Repo) RemoveCollaborator(a *Account) error {
	_, err := r.Delete(Collaborator, a.DID.String())
	return err
}

// RotateKey gives the repository's DID another key; see Account.RotateKey.
func (r *Repo) RotateKey(late bool) (publish func() error, err error) {
	return r.net.rotate(r.Repo, "", late)
}

// Move takes the repository, with its records, to another knot.
func (r *Repo) Move(to *Knot) error {
	if err := to.Records.Adopt(r.Repo, "", ""); err != nil {
		return err
	}
	to.Adopt(r.Git)
	for _, s := range knotServices(to) {
		if err := r.net.directory.SetService(r.DID, s); err != nil {
			return err
		}
	}
	r.knot.Drop(r.DID)
	r.knot.Records.Drop(r.DID)
	r.net.mu.Lock()
	r.knot = to
	r.net.mu.Unlock()
	sink{net: r.net}.Identity(r.DID.String(), "")
	return nil
}

// KnotOf is the knot that a repository is on.
func (n *Net) KnotOf(r *Repo) *Knot { return r.host() }

// host is the knot that the repository is on.
func (r *Repo) host() *Knot {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	return r.knot
}

// CloneURL is the remote by DID. A push to it without credentials is the owner's.
func (r *Repo) CloneURL() string { return r.host().Server.URL() + "/" + r.DID.String() }

// NamedURL is the remote by the owner's handle and the name.
func (r *Repo) NamedURL() string {
	return r.host().Server.URL() + "/" + r.Owner.Handle + "/" + r.Name
}

// PushURL is the remote at which a pushes; it holds the account's token.
func (r *Repo) PushURL(a *Account) string {
	u := url.URL{Scheme: "http", User: a.userinfo(), Host: r.host().Server.Addr(), Path: "/auth/" + r.DID.String()}
	return u.String()
}
