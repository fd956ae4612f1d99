package knot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kind tells the cached repositories of one DID apart.
type kind string

const (
	whole   kind = ""         // whole commits
	trees   kind = ".trees"   // commits and trees, and the blobs asked for
	history kind = ".history" // commits
)

// refPrefix is where fetched commits are kept alive and found again.
const refPrefix = "refs/spindle/"

// bareRepo is one bare repository on our disk.
type bareRepo struct {
	dir string
}

// repo names the cached repository of src for commits of sha's hash function.
func (c *Client) repo(src Source, k kind, sha string) bareRepo {
	format := ""
	if len(sha) == 64 {
		format = ".sha256"
	}
	return bareRepo{dir: filepath.Join(c.cfg.RepoDir, dirName(src.Repo)+string(k)+format+".git")}
}

// dirName is did as a file name. A colon would be read as a separator by git's lists of directories, and
// a comma occurs in no DID.
func dirName(did string) string {
	if len(did) > 180 {
		sum := sha256.Sum256([]byte(did))
		return "long," + hex.EncodeToString(sum[:])
	}
	return strings.ReplaceAll(did, ":", ",")
}

// ensure makes the repository if it is not there: the few files that make a bare one, without a process.
func (r bareRepo) ensure(sha string) error {
	if _, err := os.Stat(filepath.Join(r.dir, "config")); err == nil {
		return nil
	}
	return writeBare(r.dir, len(sha) == 64)
}

// writeBare makes an empty bare repository at dir. The file config is last: where it is, all is.
func writeBare(dir string, isSHA256 bool) error {
	for _, d := range []string{"objects/info", "objects/pack", "refs/spindle"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return fmt.Errorf("make bare repository: %w", err)
		}
	}
	conf := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if isSHA256 {
		conf = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = sha256\n"
	}
	for _, f := range [][2]string{{"HEAD", "ref: refs/heads/none\n"}, {"config", conf}} {
		if err := os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0o600); err != nil {
			return fmt.Errorf("make bare repository: %w", err)
		}
	}
	return nil
}

// has says whether sha was fetched to its end; git writes the ref after all objects are there.
func (r bareRepo) has(sha string) bool {
	_, err := os.Stat(filepath.Join(r.dir, refPrefix, sha))
	return err == nil
}

// worn says whether the repository has taken so many fetches that a fresh start costs less than going on.
func (r bareRepo) worn(packs int) bool {
	list, err := filepath.Glob(filepath.Join(r.dir, "objects/pack", "*.pack"))
	return err == nil && len(list) >= packs
}

// remove deletes the repository.
func (r bareRepo) remove() error {
	if err := os.RemoveAll(r.dir); err != nil {
		return fmt.Errorf("delete cached repository: %w", err)
	}
	return nil
}

// tidy deletes what a killed fetch leaves: locks and half-written packs.
func (r bareRepo) tidy() {
	for _, p := range []string{"*.lock", "refs/spindle/*.lock", "objects/pack/tmp_*", "objects/pack/*.keep", "objects/*/tmp_*"} {
		list, err := filepath.Glob(filepath.Join(r.dir, p))
		if err != nil {
			continue
		}
		for _, f := range list {
			_ = os.Remove(f) // what stays is found again by the next call
		}
	}
}

// fetch is what to get, and how much of it.
type fetch struct {
	url    string
	wants  []string // hashes of commits, tags or blobs
	keep   bool     // keep each want as a ref below refPrefix
	specs  []string // refspecs to use instead of those made from wants
	tags   bool     // tags that name what is fetched, as well
	depth  int      // 0: all history
	filter string   // partial clone filter; "" for whole commits
	limit  int64    // bytes
	config []string // more settings
}

// fetch gets f into r. On ErrTooLarge and on broken objects r is deleted, so that the next call starts
// from nothing.
func (c *Client) fetch(ctx context.Context, r bareRepo, f fetch) error {
	if err := r.ensure(f.wants[0]); err != nil {
		return err
	}
	done, err := c.fetchAtOnce(ctx, r, f)
	if !done {
		err = c.gitFetch(ctx, r, f)
	}
	if err == nil {
		return nil
	}
	r.tidy()
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrCorrupt) {
		if derr := r.remove(); derr != nil {
			return errors.Join(err, derr)
		}
	}
	return fmt.Errorf("fetch from %s: %w", f.url, err)
}

// gitFetch is fetch by `git fetch`.
func (c *Client) gitFetch(ctx context.Context, r bareRepo, f fetch) error {
	args := []string{
		"fetch", "--quiet", "--no-recurse-submodules", "--no-auto-maintenance",
		"--no-write-fetch-head", "--no-write-commit-graph", "--no-progress", "--no-show-forced-updates",
	}
	if !f.tags {
		args = append(args, "--no-tags")
	}
	if f.depth > 0 {
		args = append(args, fmt.Sprintf("--depth=%d", f.depth))
	}
	conf := f.config
	remote := f.url
	if f.filter != "" {
		// The promisor lives in the options of this one command. In the repository's own configuration it
		// would make every later reader fetch what it does not find.
		remote = "knot"
		conf = append([]string{"remote.knot.url=" + f.url, "remote.knot.promisor=true", "remote.knot.partialclonefilter=" + f.filter}, conf...)
		args = append(args, "--filter="+f.filter)
	}
	args = append(args, "--", remote)
	args = append(args, f.refspecs()...)
	_, err := c.git.run(ctx, command{
		op: "fetch", dir: r.dir, config: conf, args: args, maxOut: 64 << 10,
		net: c.network(), watch: filepath.Join(r.dir, "objects"), grow: f.limit,
	})
	return err
}

// refspecs is what git is asked for.
func (f fetch) refspecs() []string {
	switch {
	case f.specs != nil:
		return f.specs
	case !f.keep:
		return f.wants
	}
	var out []string
	for _, w := range f.wants {
		out = append(out, "+"+w+":"+refPrefix+w)
	}
	return out
}

// obtain sees to it that every one of shas is in r, and fetches those that are not.
func (c *Client) obtain(ctx context.Context, r bareRepo, f fetch) error {
	var miss []string
	for _, sha := range f.wants {
		if !r.has(sha) {
			miss = append(miss, sha)
		}
	}
	if len(miss) == 0 {
		return nil
	}
	if r.worn(c.lim.Packs) {
		if err := r.remove(); err != nil {
			return err
		}
		miss = f.wants
	}
	f.wants, f.keep = miss, true
	return c.fetch(ctx, r, f)
}
