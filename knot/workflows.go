package knot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// WorkflowDir is where workflow files lie in a repository.
const WorkflowDir = ".tangled/workflows"

// Bounds on the workflow files of one commit.
const (
	MaxWorkflowFiles = 64
	MaxWorkflowFile  = 256 << 10 // bytes, each
	MaxWorkflowBytes = 1 << 20   // bytes, in all
)

const (
	maxCommit  = 1 << 20  // bytes of a commit object
	maxTree    = 4 << 20  // bytes of the tree object of the workflow directory
	maxMessage = 64 << 10 // bytes of a commit's message that are kept
)

var workflowName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}\.ya?ml$`)

// File is one workflow file.
type File struct {
	Name string // file name, such as "test.yml"
	Path string // path in the repository
	Data []byte
}

// Skipped is an entry of the workflow directory that is not taken as a workflow.
type Skipped struct {
	Name string // as in the tree, made printable
	Why  string // for the user: lower case, no full stop
}

// Files is what a commit says about workflows.
type Files struct {
	Message string // the commit's message, at most 64 KiB, without control characters but line ends and tabs
	Files   []File // in the order of the tree
	Skipped []Skipped
}

// Title is the first line of the commit's message, at most 300 characters.
func (f Files) Title() string {
	line, _, _ := strings.Cut(f.Message, "\n")
	if r := []rune(line); len(r) > 300 {
		return string(r[:300])
	}
	return line
}

// Workflows reads the workflow files of exactly the commit sha. A commit that was read before costs no
// network; two calls for one commit fetch it once, since the second waits for the first and finds it.
// A commit without the directory has no files. Errors: ErrInvalid, ErrCommitGone, ErrRepoNotFound,
// ErrTooLarge and those of a fetch.
func (c *Client) Workflows(ctx context.Context, src Source, sha string) (Files, error) {
	url, unlock, err := c.enter(ctx, src, sha)
	if err != nil {
		return Files{}, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, c.lim.Timeout)
	defer cancel()
	var out Files
	err = c.again(ctx, src, sha, func() error {
		out, err = c.workflows(ctx, src, url, sha)
		return err
	})
	if err != nil {
		return Files{}, fmt.Errorf("read workflow files of %s at %s: %w", src.Repo, sha, err)
	}
	return out, nil
}

// enter checks what a call is about and takes the turn on the repository.
func (c *Client) enter(ctx context.Context, src Source, shas ...string) (string, func(), error) {
	for _, s := range shas {
		if err := checkSHA(s); err != nil {
			return "", nil, err
		}
	}
	url, err := src.cloneURL(c.cfg.Dev)
	if err != nil {
		return "", nil, err
	}
	unlock, err := c.lock(ctx, src.Repo)
	if err != nil {
		return "", nil, err
	}
	return url, unlock, nil
}

// again calls fn, and once more from an empty cache if it found broken objects: our disk may have lost a
// pack in a crash.
func (c *Client) again(ctx context.Context, src Source, sha string, fn func() error) error {
	err := fn()
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	c.log.WarnContext(ctx, "fetch repository again", "repo", src.Repo, "error", err)
	if err := c.forget(src, sha); err != nil {
		return err
	}
	return fn()
}

// forget deletes the cached repositories of src for sha's hash function.
func (c *Client) forget(src Source, sha string) error {
	for _, k := range []kind{whole, trees, history} {
		if err := c.repo(src, k, sha).remove(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) workflows(ctx context.Context, src Source, url, sha string) (Files, error) {
	r := c.repo(src, whole, sha)
	filtered, err := c.obtainSmall(ctx, src, fetch{url: url, wants: []string{sha}, depth: 1})
	if err != nil {
		return Files{}, err
	}
	if filtered {
		r = c.repo(src, trees, sha)
	}
	out, lacks, err := c.readWorkflows(ctx, r, sha)
	if err != nil || len(lacks) == 0 {
		return out, err
	}
	if !filtered {
		return Files{}, fmt.Errorf("%w: a workflow file is missing in a whole commit", ErrCorrupt)
	}
	// All missing files in one request, not one each as git itself would do.
	// Telling the knot what we have would make it leave out the very files, which belong to that commit.
	err = c.fetch(ctx, r, fetch{url: url, wants: lacks, filter: "blob:none", limit: c.lim.SmallFetch,
		config: []string{"fetch.negotiationAlgorithm=noop"}})
	if err != nil {
		return Files{}, err
	}
	out, lacks, err = c.readWorkflows(ctx, r, sha)
	if err == nil && len(lacks) > 0 {
		err = fmt.Errorf("%w: the knot did not send a workflow file", ErrCorrupt)
	}
	return out, err
}

// obtainSmall gets f.wants whole when that is little, and otherwise (filtered) commits and trees alone.
// A repository found to be large is remembered as such by its repository of the trees kind.
func (c *Client) obtainSmall(ctx context.Context, src Source, f fetch) (filtered bool, err error) {
	w, t := c.repo(src, whole, f.wants[0]), c.repo(src, trees, f.wants[0])
	if _, err := os.Stat(t.dir); err != nil {
		f.limit = c.lim.SmallFetch
		if err := c.obtain(ctx, w, f); !errors.Is(err, ErrTooLarge) {
			return false, err
		}
		if err := t.ensure(f.wants[0]); err != nil {
			return false, err
		}
	} else if hasAll(w, f.wants) {
		return false, nil
	}
	f.filter, f.limit = "blob:none", c.lim.TreeFetch
	return true, c.obtain(ctx, t, f)
}

func hasAll(r bareRepo, shas []string) bool {
	for _, s := range shas {
		if !r.has(s) {
			return false
		}
	}
	return true
}

// readWorkflows reads from our disk. lacks lists the blobs that are not there.
func (c *Client) readWorkflows(ctx context.Context, r bareRepo, sha string) (out Files, lacks []string, err error) {
	err = c.withBatch(ctx, r, func(b *batch) error {
		commit, err := b.read(sha, maxCommit)
		if errors.Is(err, errMissing) {
			return fmt.Errorf("%w: commit %s is not on our disk", ErrCorrupt, sha)
		}
		if err != nil {
			return err
		}
		if commit.kind != "commit" {
			return fmt.Errorf("%w: %s is a %s", ErrCommitGone, sha, commit.kind)
		}
		out.Message = message(commit.data)
		entries, err := b.workflowEntries(sha, &out)
		if err != nil {
			return err
		}
		lacks, err = b.workflowFiles(entries, &out)
		return err
	})
	return out, lacks, err
}

// workflowEntries lists the regular files of the workflow directory and notes what it skips.
func (b *batch) workflowEntries(sha string, out *Files) ([]entry, error) {
	tree, err := b.read(sha+":"+WorkflowDir, maxTree)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if tree.kind != "" && tree.kind != "tree" {
		out.Skipped = append(out.Skipped, Skipped{WorkflowDir, "it is not a directory"})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseTree(tree.data, len(sha)/2)
	if err != nil {
		return nil, err
	}
	var files []entry
	for _, e := range all {
		why := ""
		switch {
		case e.mode == "40000":
			why = "directories below the workflow directory are not read"
		case e.mode == "120000":
			why = "it is a symbolic link, and a workflow must be a regular file"
		case e.mode == "160000":
			why = "it is a submodule, and a workflow must be a regular file"
		case e.mode != "100644" && e.mode != "100755":
			why = "it is not a regular file"
		case !workflowName.MatchString(e.name):
			why = "its name must be letters, digits, dots, dashes and underscores and end in .yml or .yaml"
		case len(files) == MaxWorkflowFiles:
			why = fmt.Sprintf("there are more than %d workflow files", MaxWorkflowFiles)
		}
		if why == "" {
			files = append(files, e)
			continue
		}
		if len(out.Skipped) < MaxWorkflowFiles {
			out.Skipped = append(out.Skipped, Skipped{printable(e.name), why})
		}
	}
	return files, nil
}

// workflowFiles reads the files themselves within the bounds.
func (b *batch) workflowFiles(entries []entry, out *Files) (lacks []string, err error) {
	total := int64(0)
	for _, e := range entries {
		o, err := b.read(e.id, MaxWorkflowFile)
		switch {
		case errors.Is(err, errMissing):
			lacks = append(lacks, e.id)
		case errors.Is(err, ErrTooLarge):
			out.Skipped = append(out.Skipped, Skipped{e.name, fmt.Sprintf("it is larger than %d KiB", MaxWorkflowFile>>10)})
		case err != nil:
			return nil, err
		case o.kind != "blob":
			return nil, fmt.Errorf("%w: a file is a %s", ErrCorrupt, o.kind)
		case total+o.size > MaxWorkflowBytes:
			out.Skipped = append(out.Skipped, Skipped{e.name, fmt.Sprintf("the workflow files together are larger than %d KiB", MaxWorkflowBytes>>10)})
		default:
			total += o.size
			out.Files = append(out.Files, File{Name: e.name, Path: WorkflowDir + "/" + e.name, Data: o.data})
		}
	}
	return lacks, nil
}

// printable is a hostile name fit for a page or a log line.
func printable(s string) string {
	return fmt.Sprintf("%.100q", s)
}
