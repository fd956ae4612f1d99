package desk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"spindle/workflow"
)

// Repo is a checkout on this machine. Without git (Git is false) it is a folder, and everything in it is its tree.
type Repo struct {
	Top    string // absolute
	Git    bool
	common string // git's common folder, absolute
	own    string // git's folder of this work tree, absolute
	// Head is the commit that is checked out, and Branch its branch: empty where HEAD is no branch.
	Head, Branch string
}

// zeroCommit stands for the commit of a checkout that has none.
var zeroCommit = strings.Repeat("0", 39) + "1"

// Find looks at the checkout around dir. A folder without git is one too; top is then dir.
func Find(ctx context.Context, dir string) (*Repo, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder: %w", err)
	}
	out, err := git(ctx, abs, nil, "rev-parse", "--show-toplevel", "--git-common-dir", "--absolute-git-dir")
	if err != nil {
		return &Repo{Top: abs, Head: zeroCommit}, nil // no git, or no repository
	}
	part := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(part) != 3 {
		return nil, fmt.Errorf("git rev-parse said %q", out)
	}
	r := &Repo{Top: part[0], Git: true, common: part[1], own: part[2], Head: zeroCommit}
	if !filepath.IsAbs(r.common) {
		r.common = filepath.Join(abs, r.common)
	}
	r.Head, r.Branch = r.readHead()
	return r, nil
}

// readHead reads what is checked out from git's files, as gitrepository-layout(5) has them.
func (r *Repo) readHead() (commit, branch string) {
	b, err := os.ReadFile(filepath.Join(r.own, "HEAD"))
	if err != nil {
		return zeroCommit, ""
	}
	head := strings.TrimSpace(string(b))
	ref, symbolic := strings.CutPrefix(head, "ref: ")
	if !symbolic {
		return head, ""
	}
	branch, _ = strings.CutPrefix(ref, "refs/heads/")
	if commit = r.readRef(ref); commit == "" {
		return zeroCommit, branch
	}
	return commit, branch
}

// readRef is the commit that a ref names, or "".
func (r *Repo) readRef(ref string) string {
	if b, err := os.ReadFile(filepath.Join(r.common, ref)); err == nil {
		return strings.TrimSpace(string(b))
	}
	b, err := os.ReadFile(filepath.Join(r.common, "packed-refs"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return id
		}
	}
	return ""
}

// DefaultBranch is the one that the remote named at the clone, or main.
func (r *Repo) DefaultBranch() string {
	if b, err := os.ReadFile(filepath.Join(r.common, "refs/remotes/origin/HEAD")); r.Git && err == nil {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "ref: refs/remotes/origin/"); ok {
			return name
		}
	}
	for _, name := range []string{"main", "master"} {
		if r.Git && r.readRef("refs/heads/"+name) != "" {
			return name
		}
	}
	return "main"
}

// Commit is the commit that ref names.
func (r *Repo) Commit(ctx context.Context, ref string) (string, error) {
	if !r.Git {
		return "", errors.New("--ref needs a git repository, and there is none here")
	}
	out, err := git(ctx, r.Top, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("there is no commit %q in this repository", ref)
	}
	return strings.TrimSpace(string(out)), nil
}

// Files reads the workflow files of a commit.
func (r *Repo) Files(ctx context.Context, commit string) ([]workflow.File, error) {
	out, err := git(ctx, r.Top, nil, "ls-tree", "-z", "-l", commit, workflow.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the workflow files of %s: %w", commit, err)
	}
	var files []workflow.File
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		head, name, ok := strings.Cut(entry, "\t")
		field := strings.Fields(head)
		if !ok || len(field) != 4 || len(files) > 1000 {
			continue
		}
		f := workflow.File{Path: name}
		switch field[0] {
		case "100644", "100755":
			if f.Data, err = git(ctx, r.Top, nil, "cat-file", "blob", field[2]); err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", name, commit, err)
			}
		case "120000":
			f.NotTaken = "it is a symbolic link"
		default:
			f.NotTaken = "it is not a regular file"
		}
		files = append(files, f)
	}
	return files, nil
}

// Fingerprint changes when the tree does: names, sizes and times of its files.
func (r *Repo) Fingerprint(ctx context.Context) (string, error) {
	t := &tree{repo: r}
	list, err := t.files(ctx)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range list {
		if info, err := os.Lstat(filepath.Join(r.Top, name)); err == nil {
			fmt.Fprintf(h, "%s\x00%d %d %v\x00", name, info.Size(), info.ModTime().UnixNano(), info.Mode())
		}
	}
	return string(h.Sum(nil)), nil
}

// Changed is what a push of branch, or a pull request to target, changes: from where the remote's branch is, or the
// commit before, or the point that both have in common. What is not committed counts unless commit names another.
func (r *Repo) Changed(ctx context.Context, branch, target, commit string) workflow.Changed {
	if !r.Git || r.Head == zeroCommit {
		return workflow.Changed{}
	}
	at := commit
	if at == "" {
		at = "HEAD"
	}
	var bases []string
	if target != "" {
		for _, t := range []string{"refs/remotes/origin/" + target, "refs/heads/" + target} {
			if out, err := git(ctx, r.Top, nil, "merge-base", t, at); err == nil {
				bases = append(bases, strings.TrimSpace(string(out)))
			}
		}
	} else {
		bases = []string{"refs/remotes/origin/" + branch, at + "~1", r.emptyTree()}
	}
	for _, base := range bases {
		args := []string{"diff", "--name-only", "-z", "--no-renames", base}
		if commit != "" {
			args = append(args, commit)
		}
		out, err := git(ctx, r.Top, nil, append(args, "--")...)
		if err != nil {
			continue
		}
		files := fields(out)
		if commit == "" {
			if out, err = git(ctx, r.Top, nil, "ls-files", "-z", "-o", "--exclude-standard"); err != nil {
				continue
			}
			files = append(files, fields(out)...)
		}
		slices.Sort(files)
		return workflow.Changed{Files: slices.Compact(files), Known: true}
	}
	return workflow.Changed{}
}

// emptyTree is the name of a tree without entries, which git knows without having it.
func (r *Repo) emptyTree() string {
	if len(r.Head) == 64 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

func fields(b []byte) []string {
	return strings.FieldsFunc(string(b), func(c rune) bool { return c == 0 })
}

// git runs git in dir and returns what it printed. It asks for nothing and runs no hooks of what it only reads.
func git(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"}, args...)...)
	c.Dir, c.Env = dir, append(append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C"), env...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}
