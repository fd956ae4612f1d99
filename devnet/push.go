package devnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Change is a commit to be made and pushed, as a person would with git.
type Change struct {
	// As is who pushes. Nil means the owner, without credentials.
	As *Account
	// Branch is the short name of the branch to move. Empty means the default branch.
	Branch string
	// From is the branch to start from when Branch does not exist yet. Empty means the default branch.
	From string
	// Message is the commit's. Empty means "change".
	Message string
	// Files maps paths to contents; nothing else changes.
	Files map[string]string
	// Remove lists paths to delete.
	Remove []string
	// Tag, if not empty, is pushed with the branch and names the new commit.
	Tag string
	// Options are the push options.
	Options []string
	// Force amends the last commit of the branch instead of adding one, and pushes with force.
	Force bool
}

// Pushed is what came of a Change.
type Pushed struct {
	Ref    string
	SHA    string
	Output string // what git printed to the pusher, "remote: ..." lines included
}

// Push makes the commit in a temporary clone and pushes it over HTTP. When git refuses, the error holds
// what it said.
func (r *Repo) Push(ctx context.Context, c Change) (Pushed, error) {
	if c.Branch == "" {
		c.Branch = r.Git.DefaultBranch
	}
	if c.From == "" {
		c.From = r.Git.DefaultBranch
	}
	if c.Message == "" {
		c.Message = "change"
	}
	dir, err := os.MkdirTemp(r.net.dir, "work-")
	if err != nil {
		return Pushed{}, fmt.Errorf("make a work folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w := worktree{dir: dir, env: r.net.gitEnv()}
	if err := w.begin(ctx, r, c); err != nil {
		return Pushed{}, err
	}
	if err := w.change(c); err != nil {
		return Pushed{}, err
	}
	commit := []string{"commit", "-q", "--allow-empty", "-m", c.Message}
	if c.Force {
		commit = append(commit, "--amend")
	}
	if _, err := w.git(ctx, "add", "-A"); err != nil {
		return Pushed{}, err
	}
	if _, err := w.git(ctx, commit...); err != nil {
		return Pushed{}, err
	}
	sha, err := w.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return Pushed{}, err
	}
	out, err := w.git(ctx, r.pushArgs(c)...)
	return Pushed{Ref: "refs/heads/" + c.Branch, SHA: strings.TrimSpace(sha), Output: out}, err
}

func (r *Repo) pushArgs(c Change) []string {
	remote := r.CloneURL()
	if c.As != nil {
		remote = r.PushURL(c.As)
	}
	args := []string{"push", "-q"}
	if c.Force {
		args = append(args, "--force")
	}
	for _, o := range c.Options {
		args = append(args, "-o", o)
	}
	args = append(args, remote, "HEAD:refs/heads/"+c.Branch)
	if c.Tag != "" {
		args = append(args, "HEAD:refs/tags/"+c.Tag)
	}
	return args
}

// DeleteBranch removes a branch, as whoever pushes.
func (r *Repo) DeleteBranch(ctx context.Context, as *Account, branch string) error {
	remote := r.CloneURL()
	if as != nil {
		remote = r.PushURL(as)
	}
	w := worktree{dir: r.Git.Dir, env: r.net.gitEnv()}
	_, err := w.git(ctx, "push", "-q", remote, ":refs/heads/"+branch)
	return err
}

// Head is the commit that a branch is at, or an error when there is no such branch.
func (r *Repo) Head(ctx context.Context, branch string) (string, error) {
	return r.host().Git(ctx, r.Git.Dir, "rev-parse", "--verify", "refs/heads/"+branch+"^{commit}")
}

// gitEnv is an environment with a name for the author and nothing of this machine's configuration.
func (n *Net) gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=Devnet",
		"GIT_AUTHOR_EMAIL=devnet@knot.test", "GIT_COMMITTER_NAME=Devnet", "GIT_COMMITTER_EMAIL=devnet@knot.test",
	}
}

// worktree is a temporary clone.
type worktree struct {
	dir string
	env []string
}

// git runs one command and returns both of its outputs as the person would read them.
func (w worktree) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// begin puts the worktree where the change starts.
func (w worktree) begin(ctx context.Context, r *Repo, c Change) error {
	if _, err := w.git(ctx, "init", "-q", "-b", c.Branch); err != nil {
		return err
	}
	for _, branch := range []string{c.Branch, c.From} {
		if _, err := r.Head(ctx, branch); err != nil {
			continue
		}
		if _, err := w.git(ctx, "fetch", "-q", r.CloneURL(), "refs/heads/"+branch); err != nil {
			return err
		}
		_, err := w.git(ctx, "reset", "-q", "--hard", "FETCH_HEAD")
		return err
	}
	return nil // an empty repository: the first commit
}

// change writes and removes files.
func (w worktree) change(c Change) error {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return fmt.Errorf("open the work folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	for path, text := range c.Files {
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if err := root.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	for _, path := range c.Remove {
		if err := root.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}
