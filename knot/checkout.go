package knot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// storeRef is the ref of an object store that names the commit to check out.
const storeRef = refPrefix + "commit"

// CheckoutRequest says which commit is wanted, and how much around it.
type CheckoutRequest struct {
	Source     Source
	SHA        string
	Depth      int    // commits of history; 0 means all
	Tags       bool   // tags of the commits that are fetched
	Submodules bool   // submodules at the commits that the tree names, nested ones too
	Dir        string // absolute; must be empty or not there. Owned by the caller, who deletes it
}

// Checkout is a commit made ready: bare object stores below Dir, which nothing else is needed for.
type Checkout struct {
	Dir        string
	SHA        string
	CloneURL   string      // what the job's clone gets as its remote "origin"
	Tags       bool        // the store has tags
	Shallow    bool        // the store does not have all history
	Tree       bool        // Dir is no store but the work tree itself, to be copied
	depth      int         // as asked for
	Submodules []Submodule // outer ones before those inside them
}

// Submodule is one submodule of a Checkout.
type Submodule struct {
	Path string // from the top of the checkout, with slashes
	Name string // as .gitmodules has it
	URL  string // where it came from
	Dir  string // its bare object store, below Checkout.Dir
	SHA  string

	parent int // index of the submodule that it lies in; -1 for the checkout itself
}

// PrepareCheckout puts the objects of one commit into req.Dir, without a work tree: it is the script of
// CheckoutScript, run inside the sandbox, that writes files. What Workflows has fetched whole is linked,
// not fetched again. Errors: ErrInvalid, ErrCommitGone, ErrRepoNotFound, ErrTooLarge, those of a fetch,
// and *SubmoduleError. After an error Dir is in no defined state.
func (c *Client) PrepareCheckout(ctx context.Context, req CheckoutRequest) (Checkout, error) {
	if req.Depth < 0 || !filepath.IsAbs(req.Dir) {
		return Checkout{}, fmt.Errorf("%w: depth or directory of a checkout", ErrInvalid)
	}
	if list, err := os.ReadDir(req.Dir); err == nil && len(list) > 0 {
		return Checkout{}, fmt.Errorf("%w: the directory of a checkout is not empty", ErrInvalid)
	}
	url, unlock, err := c.enter(ctx, req.Source, req.SHA)
	if err != nil {
		return Checkout{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.lim.CheckoutTimeout)
	defer cancel()
	out := Checkout{Dir: req.Dir, SHA: req.SHA, CloneURL: url, depth: req.Depth}
	var modules []byte
	if req.Depth == 1 {
		err = c.again(ctx, req.Source, req.SHA, func() error {
			modules, err = c.storeShallow(ctx, req, url, &out)
			return err
		})
	} else {
		modules, err = c.storeFetched(ctx, req, url, &out)
	}
	unlock()
	if err == nil && req.Submodules && len(modules) > 0 {
		err = c.storeSubmodules(ctx, &out, modules)
	}
	if err == nil {
		err = openUp(req.Dir)
	}
	if err != nil {
		return Checkout{}, fmt.Errorf("prepare checkout of %s at %s: %w", req.Source.Repo, req.SHA, err)
	}
	return out, nil
}

// storeShallow makes the store out of the cached repository of whole commits, and reads .gitmodules.
func (c *Client) storeShallow(ctx context.Context, req CheckoutRequest, url string, out *Checkout) ([]byte, error) {
	if err := empty(req.Dir); err != nil {
		return nil, err
	}
	r := c.repo(req.Source, whole, req.SHA)
	err := c.obtain(ctx, r, fetch{url: url, wants: []string{req.SHA}, depth: 1, limit: c.lim.CheckoutFetch})
	if err != nil {
		return nil, err
	}
	refs := []remoteRef{{name: storeRef, id: req.SHA}}
	if req.Tags {
		tags, err := c.tagsOf(ctx, r, url, req.SHA)
		if err != nil {
			return nil, err
		}
		out.Tags = len(tags) > 0
		refs = append(refs, tags...)
	}
	if err := writeBare(req.Dir, len(req.SHA) == 64); err != nil {
		return nil, err
	}
	if err := linkPacks(r.dir, req.Dir); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(req.Dir, "shallow"), []byte(req.SHA+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write shallow file: %w", err)
	}
	if err := writeRefs(req.Dir, refs); err != nil {
		return nil, err
	}
	out.Shallow = true
	return c.inspect(ctx, req.Dir, req.SHA)
}

// inspect makes sure that the commit is really in the store before a job is built on it, and reads
// .gitmodules; nil if there is none.
func (c *Client) inspect(ctx context.Context, dir, sha string) (modules []byte, err error) {
	err = c.withBatch(ctx, bareRepo{dir: dir}, func(b *batch) error {
		o, err := b.info(sha)
		if errors.Is(err, errMissing) {
			return fmt.Errorf("%w: commit %s is not on our disk", ErrCorrupt, sha)
		}
		if err != nil {
			return err
		}
		if o.kind != "commit" {
			return fmt.Errorf("%w: %s is a %s", ErrCommitGone, sha, o.kind)
		}
		o, err = b.read(sha+":.gitmodules", maxModules)
		if errors.Is(err, errMissing) || err == nil && o.kind != "blob" {
			return nil
		}
		modules = o.data
		if errors.Is(err, ErrTooLarge) {
			return &SubmoduleError{Sentence: "the file .gitmodules is too large", Err: err}
		}
		return err
	})
	return modules, err
}

// tagsOf asks the knot for the tags that name exactly sha, and fetches the annotated ones among them.
func (c *Client) tagsOf(ctx context.Context, r bareRepo, url, sha string) ([]remoteRef, error) {
	all, err := c.tags(ctx, url)
	if err != nil {
		return nil, err
	}
	var mine []remoteRef
	var wants []string
	for _, t := range all {
		if t.id != sha && t.peeled != sha {
			continue
		}
		mine = append(mine, t)
		if t.peeled != "" && !r.has(t.id) {
			wants = append(wants, t.id)
		}
	}
	if len(mine) > 1000 {
		return nil, fmt.Errorf("%w: more than 1000 tags of one commit", ErrTooLarge)
	}
	if len(wants) > 0 {
		err = c.fetch(ctx, r, fetch{url: url, wants: wants, keep: true, depth: 1, limit: c.lim.TreeFetch})
	}
	return mine, err
}

// storeFetched makes the store by a fetch of its own, for histories other than one commit.
func (c *Client) storeFetched(ctx context.Context, req CheckoutRequest, url string, out *Checkout) ([]byte, error) {
	if err := writeBare(req.Dir, len(req.SHA) == 64); err != nil {
		return nil, err
	}
	spec := "+" + req.SHA + ":" + storeRef
	f := fetch{url: url, specs: []string{spec}, wants: []string{req.SHA}, depth: req.Depth, limit: c.lim.CheckoutFetch, tags: req.Tags}
	if err := c.fetch(ctx, bareRepo{dir: req.Dir}, f); err != nil {
		return nil, err
	}
	if _, err := c.git.run(ctx, command{op: "pack-refs", dir: req.Dir, args: []string{"pack-refs", "--all"}, maxOut: 4 << 10}); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(req.Dir, "packed-refs"))
	if err != nil {
		return nil, fmt.Errorf("read refs of checkout: %w", err)
	}
	out.Tags = strings.Contains(string(b), " refs/tags/")
	out.Shallow = exists(filepath.Join(req.Dir, "shallow"))
	return c.inspect(ctx, req.Dir, req.SHA)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openUp lets the job's user, who is another one, read the store. The caller's directory above it keeps
// others of the machine out.
func openUp(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("open up the checkout: %w", err)
		case d.IsDir():
			err = os.Chmod(p, 0o755)
		case d.Type().IsRegular():
			err = os.Chmod(p, 0o444)
		}
		if err != nil {
			return fmt.Errorf("open up the checkout: %w", err)
		}
		return nil
	})
}

// empty removes what is in dir, and makes dir if it is not there. The directory itself stays, since it may
// be mounted already.
func empty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the checkout directory: %w", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty the checkout directory: %w", err)
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty the checkout directory: %w", err)
		}
	}
	return nil
}

// linkPacks gives to the packs of from: by hard links where the file system allows it, else as copies.
// Packs are never changed in place, and the job sees them read-only.
func linkPacks(from, to string) error {
	list, err := filepath.Glob(filepath.Join(from, "objects/pack", "pack-*"))
	if err != nil {
		return fmt.Errorf("list packs: %w", err)
	}
	for _, p := range list {
		if ext := filepath.Ext(p); ext != ".pack" && ext != ".idx" {
			continue
		}
		dst := filepath.Join(to, "objects/pack", filepath.Base(p))
		if os.Link(p, dst) == nil {
			continue
		}
		if err := copyFile(p, dst); err != nil {
			return fmt.Errorf("copy a pack: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	_, err = io.Copy(out, in)
	return err
}

// writeRefs writes refs as git's packed-refs file, which one read gives to the job.
func writeRefs(dir string, refs []remoteRef) error {
	sort.Slice(refs, func(i, j int) bool { return refs[i].name < refs[j].name })
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for _, r := range refs {
		fmt.Fprintf(&b, "%s %s\n", r.id, r.name)
		if r.peeled != "" {
			fmt.Fprintf(&b, "^%s\n", r.peeled)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "packed-refs"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write refs of checkout: %w", err)
	}
	return nil
}
