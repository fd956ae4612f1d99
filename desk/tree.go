package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"spindle/engines"
	"spindle/knot"
)

// objectsMount is where a machine with a file system of its own sees the objects of the person's repository.
const objectsMount = "/spindle/objects"

// tree makes copies of what is to run: it is the runner's Checkouts. The list of files is made once, so that all
// workflows of a run see the same.
type tree struct {
	repo     *Repo
	ref      string // a commit; empty is the working tree
	objects  string // where the machine sees the objects of the repository
	listOnce sync.Once
	list     []string
	listErr  error
}

// start lists the files ahead of the first checkout.
func (t *tree) start(ctx context.Context) {
	if t.ref == "" {
		_, _ = t.files(ctx) // an error is told by the checkout
	}
}

// mounts are what machines need beside their own checkout.
func (t *tree) mounts() []engines.Mount {
	dir := filepath.Join(t.repo.common, "objects")
	if !t.repo.Git || t.objects != objectsMount {
		return nil
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return []engines.Mount{{Source: dir, Target: objectsMount}}
}

// Locate implements runner.Checkouts.
func (t *tree) Locate(context.Context, string) (knot.Source, error) {
	return knot.Source{Repo: deskRepo, KnotURL: "file://" + t.repo.Top}, nil
}

// PrepareCheckout implements runner.Checkouts: it copies the tree into r.Dir. The person's own is only read.
func (t *tree) PrepareCheckout(ctx context.Context, r knot.CheckoutRequest) (knot.Checkout, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return knot.Checkout{}, err
	}
	var err error
	if t.ref != "" {
		err = t.extract(ctx, r.Dir)
	} else {
		err = t.copyAll(ctx, r.Dir)
	}
	if err != nil {
		return knot.Checkout{}, engines.Fault("the tree could not be copied: "+err.Error(), err)
	}
	return knot.Checkout{Dir: r.Dir, SHA: r.SHA, Tree: true}, nil
}

// files lists the tree: what git tracks and what it does not ignore.
func (t *tree) files(ctx context.Context) ([]string, error) {
	t.listOnce.Do(func() {
		if !t.repo.Git {
			t.list, t.listErr = walk(t.repo.Top, "")
			return
		}
		t.list, t.listErr = listGit(ctx, t.repo.Top, "", 0)
	})
	return t.list, t.listErr
}

// maxDepth bounds submodules inside submodules.
const maxDepth = 8

// listGit lists the tree of the repository at top, with those of its submodules.
func listGit(ctx context.Context, top, prefix string, depth int) ([]string, error) {
	out, err := git(ctx, filepath.Join(top, prefix), nil, "ls-files", "-z", "-c", "-o", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range fields(out) {
		path := filepath.Join(prefix, name)
		if strings.HasSuffix(name, "/") { // a repository in the tree that is not part of it
			continue
		}
		if info, err := os.Lstat(filepath.Join(top, path)); err == nil && info.IsDir() { // a submodule
			if exists(filepath.Join(top, path, ".git")) && depth < maxDepth {
				sub, err := listGit(ctx, top, path, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, sub...)
			}
			continue
		}
		list = append(list, path)
	}
	return list, nil
}

// walk lists a folder without git.
func walk(top, prefix string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(filepath.Join(top, prefix), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(top, p)
		list = append(list, rel)
		return err
	})
	return list, err
}

// copyAll copies the working tree and what git needs beside it.
func (t *tree) copyAll(ctx context.Context, to string) error {
	list, err := t.files(ctx)
	if err != nil {
		return err
	}
	made := map[string]bool{}
	for i, name := range list {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		dir := filepath.Dir(name)
		if !made[dir] {
			if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
				return err
			}
			made[dir] = true
		}
		if err := copyEntry(filepath.Join(t.repo.Top, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	if !t.repo.Git {
		return nil
	}
	return t.writeGit(to, t.repo.Head, filepath.Join(t.repo.own, "index"))
}

// extract writes the tree of a commit.
func (t *tree) extract(ctx context.Context, to string) error {
	if err := t.writeGit(to, t.ref, ""); err != nil {
		return err
	}
	env := []string{"GIT_INDEX_FILE=" + filepath.Join(to, ".git", "index")}
	if _, err := git(ctx, t.repo.Top, env, "read-tree", t.ref); err != nil {
		return err
	}
	_, err := git(ctx, t.repo.Top, env, "checkout-index", "-a", "-f", "--prefix="+to+"/")
	return err
}

// writeGit makes the copy a repository at commit, whose objects are those of the person's.
func (t *tree) writeGit(to, commit, index string) error {
	g := filepath.Join(to, ".git")
	for _, d := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(g, d), 0o755); err != nil {
			return err
		}
	}
	format := "[core]\n\trepositoryformatversion = 0\n"
	if len(commit) == 64 {
		format = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n[core]\n"
	}
	files := map[string]string{
		"config":                  format + "\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
		"objects/info/alternates": t.objects + "\n",
		"HEAD":                    commit + "\n",
	}
	if commit == zeroCommit {
		files["HEAD"] = "ref: refs/heads/main\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(g, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for from, name := range map[string]string{
		index: "index", filepath.Join(t.repo.common, "packed-refs"): "packed-refs", filepath.Join(t.repo.common, "shallow"): "shallow",
	} {
		if from == "" {
			continue
		}
		if err := copyEntry(from, filepath.Join(g, name)); err != nil {
			return err
		}
	}
	tags := filepath.Join(t.repo.common, "refs/tags")
	return filepath.WalkDir(tags, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // tags that cannot be read are left out
		}
		rel, err := filepath.Rel(tags, p)
		if err != nil {
			return nil
		}
		if err := os.MkdirAll(filepath.Join(g, "refs/tags", filepath.Dir(rel)), 0o755); err != nil {
			return err
		}
		return copyEntry(p, filepath.Join(g, "refs/tags", rel))
	})
}

// copyEntry copies a file or a link; what has been deleted, and what is neither, is left out. Everybody may read the
// copy, since the machine's user is another one.
func copyEntry(from, to string) error {
	info, err := os.Lstat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	mode := info.Mode().Perm()
	mode |= 0o644 | (mode&0o100)>>3 | (mode&0o100)>>6
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
