package knot

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// maxBases bounds the output of git merge-base: one object name.
const maxBases = 4 << 10

// ErrNoMergeBase means that two histories never met.
var ErrNoMergeBase = errors.New("knot: no common ancestor")

// MergeBase is the commit at which the commit head of src left the history of other, where other's side is ref (a full
// name, resolved at other's own knot) or, where ref is empty, the commit at. The two may be repositories on different
// knots: the commits of both are fetched, with their whole history and without trees and files, and the answer is
// computed from them. Errors: ErrInvalid, ErrRefGone, ErrCommitGone, ErrTooLarge, ErrNoMergeBase, and those of a fetch.
func (c *Client) MergeBase(ctx context.Context, src Source, head string, other Source, ref, at string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.lim.Timeout)
	defer cancel()
	if ref != "" {
		var err error
		if at, err = c.ResolveRef(ctx, other, ref); err != nil {
			return "", err
		}
	}
	from, err := other.cloneURL(c.cfg.Dev)
	if err != nil {
		return "", err
	}
	url, unlock, err := c.enter(ctx, src, head, at)
	if err != nil {
		return "", err
	}
	defer unlock()
	if len(head) != len(at) {
		return "", fmt.Errorf("%w: hashes of two kinds", ErrInvalid)
	}
	var out string
	err = c.again(ctx, src, head, func() error {
		out, err = c.mergeBase(ctx, c.repo(src, history, head), url, head, from, at)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find where %s of %s left %s of %s: %w", head, src.Repo, at, other.Repo, err)
	}
	return out, nil
}

// mergeBase gathers both histories in one repository: objects are named by what they hold, so those of the one cannot
// be mistaken for those of the other.
func (c *Client) mergeBase(ctx context.Context, r bareRepo, url, head, from, at string) (string, error) {
	for _, f := range []fetch{{url: url, wants: []string{head}}, {url: from, wants: []string{at}}} {
		f.filter, f.limit = "tree:0", c.lim.TreeFetch
		if err := c.obtain(ctx, r, f); err != nil {
			return "", err
		}
	}
	out, err := c.git.run(ctx, command{op: "merge-base", dir: r.dir, args: []string{"merge-base", at, head}, maxOut: maxBases})
	var ge *GitError
	if errors.As(err, &ge) && ge.exit == 1 {
		return "", ErrNoMergeBase
	}
	if err != nil {
		return "", err
	}
	sha := strings.TrimSpace(string(out))
	if err := checkSHA(sha); err != nil {
		return "", fmt.Errorf("%w: git merge-base says %.80q", ErrCorrupt, sha)
	}
	return sha, nil
}
