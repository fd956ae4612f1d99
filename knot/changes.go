package knot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// maxDiff bounds what git may print about one comparison.
const maxDiff = 16 << 20

// ChangedFiles lists the paths in which the commits old and sha differ, at most limit of them; complete is
// false when there were more. A renamed file counts with both names. An old of zeros only (a new branch)
// compares with nothing: every file counts as changed. Only the two commits are fetched, so what lies
// between them does not matter. Errors: ErrInvalid, ErrCommitGone (either commit), ErrTooLarge, and those
// of a fetch.
func (c *Client) ChangedFiles(ctx context.Context, src Source, old, sha string, limit int) (files []string, complete bool, err error) {
	url, unlock, err := c.enter(ctx, src, old, sha)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, c.lim.Timeout)
	defer cancel()
	var out []byte
	err = c.again(ctx, src, sha, func() error {
		out, err = c.diff(ctx, src, url, old, sha)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("compare %s with %s in %s: %w", old, sha, src.Repo, err)
	}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		switch {
		case len(name) == 0:
		case len(files) == limit:
			return files, false, nil
		default:
			files = append(files, string(name))
		}
	}
	return files, true, nil
}

// diff gives the paths, each ended by a NUL.
func (c *Client) diff(ctx context.Context, src Source, url, old, sha string) ([]byte, error) {
	created := strings.Trim(old, "0") == ""
	wants := []string{sha}
	if !created && old != sha {
		wants = append(wants, old)
	}
	if len(old) != len(sha) {
		return nil, fmt.Errorf("%w: hashes of two kinds", ErrInvalid)
	}
	filtered, err := c.obtainSmall(ctx, src, fetch{url: url, wants: wants, depth: 1})
	if err != nil {
		return nil, err
	}
	k := whole
	if filtered {
		k = trees
	}
	args := []string{"diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", old, sha}
	if created {
		args = []string{"ls-tree", "-r", "-z", "--name-only", "--full-tree", sha}
	}
	return c.git.run(ctx, command{op: "diff", dir: c.repo(src, k, sha).dir, args: args, maxOut: maxDiff})
}

// RefContains says whether the commit sha is ref's tip or one of its ancestors. The knot is asked for the
// tip alone; the answer is computed from the commits themselves, fetched with their whole history but
// without trees and files, so that a knot cannot place a commit in a branch by saying so. Errors:
// ErrInvalid, ErrRefGone, ErrTooLarge, and those of a fetch.
func (c *Client) RefContains(ctx context.Context, src Source, ref, sha string) (bool, error) {
	if err := checkRef(ref); err != nil {
		return false, err
	}
	url, unlock, err := c.enter(ctx, src, sha)
	if err != nil {
		return false, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, c.lim.Timeout)
	defer cancel()
	tip, err := c.ResolveRef(ctx, src, ref)
	if err != nil {
		return false, err
	}
	if tip == sha || len(tip) != len(sha) {
		return tip == sha, nil
	}
	var in bool
	err = c.again(ctx, src, sha, func() error {
		in, err = c.contains(ctx, c.repo(src, history, sha), url, tip, sha)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for %s in %s of %s: %w", sha, ref, src.Repo, err)
	}
	return in, nil
}

func (c *Client) contains(ctx context.Context, r bareRepo, url, tip, sha string) (bool, error) {
	err := c.obtain(ctx, r, fetch{url: url, wants: []string{tip}, filter: "tree:0", limit: c.lim.TreeFetch})
	if err != nil {
		return false, err
	}
	known := true
	err = c.withBatch(ctx, r, func(b *batch) error {
		if _, err := b.info(tip); err != nil {
			return fmt.Errorf("%w: the tip is not on our disk", ErrCorrupt)
		}
		_, err := b.info(sha)
		if errors.Is(err, errMissing) {
			known = false
			return nil
		}
		return err
	})
	if err != nil || !known {
		return false, err
	}
	_, err = c.git.run(ctx, command{op: "merge-base", dir: r.dir, args: []string{"merge-base", "--is-ancestor", sha, tip}, maxOut: 4 << 10})
	var ge *GitError
	if errors.As(err, &ge) && ge.exit == 1 {
		return false, nil
	}
	return err == nil, err
}
