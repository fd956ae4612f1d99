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
	// Files maps paths to contents; nothing else changes. One that begins with "#!" can be executed.
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

// ErrPath refuses a file path that git would not take as it is.
var ErrPath = errors.New("devnet: the path is not a plain relative one")

// Push makes the commit in a temporary repository and pushes it over HTTP with git. When git refuses, the
// error holds what it said.
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
	w, err := r.net.scratch(r.Git.Dir)
	if err != nil {
		return Pushed{}, err
	}
	defer func() { _ = os.RemoveAll(w.dir) }()
	script, err := r.script(c, r.start(ctx, c))
	if err != nil {
		return Pushed{}, err
	}
	sha, err := w.git(ctx, script, "fast-import", "--quiet", "--done")
	if err != nil {
		return Pushed{}, err
	}
	out, err := w.git(ctx, "", r.pushArgs(c)...)
	return Pushed{Ref: "refs/heads/" + c.Branch, SHA: strings.TrimSpace(sha), Output: out}, err
}

// start lists the commit that c goes on from, its tree and its parents; empty for the first commit of all.
func (r *Repo) start(ctx context.Context, c Change) []string {
	for _, branch := range []string{c.Branch, c.From} {
		ref := "refs/heads/" + branch
		out, err := r.host().Git(ctx, r.Git.Dir, "rev-parse", ref, ref+"^{tree}", ref+"^@")
		if err == nil {
			return strings.Fields(out)
		}
	}
	return nil
}

// script is the input of git fast-import(1) that makes the commit and prints its name.
func (r *Repo) script(c Change, start []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "commit refs/heads/%s\nmark :1\ncommitter Devnet <devnet@knot.test> %d +0000\ndata %d\n%s\n",
		c.Branch, r.net.cfg.Clock.Now().Unix(), len(c.Message), c.Message)
	switch {
	case len(start) == 0:
	case !c.Force:
		fmt.Fprintf(&b, "from %s\n", start[0])
	default:
		for i, parent := range start[2:] {
			fmt.Fprintf(&b, "%s %s\n", []string{"from", "merge"}[min(i, 1)], parent)
		}
		fmt.Fprintf(&b, "M 040000 %s \"\"\n", start[1])
	}
	for _, path := range c.Remove {
		if !plain(path) {
			return "", fmt.Errorf("%w: %q", ErrPath, path)
		}
		fmt.Fprintf(&b, "D %s\n", path)
	}
	for path, text := range c.Files {
		if !plain(path) {
			return "", fmt.Errorf("%w: %q", ErrPath, path)
		}
		mode := "100644"
		if strings.HasPrefix(text, "#!") {
			mode = "100755"
		}
		fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", mode, path, len(text), text)
	}
	b.WriteString("\nget-mark :1\ndone\n")
	return b.String(), nil
}

// plain reports whether path means the same to fast-import without quotes.
func plain(path string) bool {
	return filepath.IsLocal(path) && path != "." && path[0] != '"' && !strings.ContainsAny(path, "\n\x00")
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
	ref := "refs/heads/" + c.Branch
	args = append(args, remote, ref+":"+ref)
	if c.Tag != "" {
		args = append(args, ref+":refs/tags/"+c.Tag)
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
	_, err := w.git(ctx, "", "push", "-q", remote, ":refs/heads/"+branch)
	return err
}

// Head is the commit that a branch is at, or an error when there is no such branch.
func (r *Repo) Head(ctx context.Context, branch string) (string, error) {
	return r.host().Git(ctx, r.Git.Dir, "rev-parse", "--verify", "refs/heads/"+branch+"^{commit}")
}

// gitEnv is an environment with nothing of this machine's configuration.
func (n *Net) gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
	}
}

// worktree is where a person's git runs.
type worktree struct {
	dir string
	env []string
}

// scratch is a temporary repository that has the objects of the one at dir, written by hand since it is
// the least that git takes for one and saves a process for each push.
func (n *Net) scratch(dir string) (worktree, error) {
	tmp, err := os.MkdirTemp(n.dir, "work-")
	if err != nil {
		return worktree{}, fmt.Errorf("make a work folder: %w", err)
	}
	err = errors.Join(os.MkdirAll(filepath.Join(tmp, "objects", "info"), 0o755), os.Mkdir(filepath.Join(tmp, "refs"), 0o755))
	for name, text := range map[string]string{
		"HEAD":                    "ref: refs/heads/none\n",
		"config":                  "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
		"objects/info/alternates": filepath.Join(dir, "objects") + "\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o644))
	}
	if err != nil {
		return worktree{}, errors.Join(fmt.Errorf("make a work folder: %w", err), os.RemoveAll(tmp))
	}
	return worktree{dir: tmp, env: append(n.gitEnv(), "GIT_DIR="+tmp)}, nil
}

// git runs one command with input and returns both of its outputs as the person would read them.
func (w worktree) git(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, w.env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
