package trigger

import (
	"context"
	"errors"
	"fmt"

	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// maxChanged bounds the list of changed files; above it every path condition matches, because running too
// much is better than running too little.
const maxChanged = 10_000

// changed lists what t changed: of a push, from where its ref was; of a pull request, from where its head left the
// target branch. why says why that is not known, if it is not. Only what may be better later is an error.
func (p *Planner) changed(ctx context.Context, t pipeline.Trigger, repo store.RepoBinding, src knot.Source) (c workflow.Changed, why string, err error) {
	from := t.Old
	if t.Pull != nil {
		from, why, err = p.fork(ctx, t, repo, src)
		if err != nil || why != "" {
			return workflow.Changed{}, why, err
		}
	}
	names, complete, err := p.c.Sources.ChangedFiles(ctx, src, from, t.Commit, maxChanged)
	switch {
	case err != nil && knot.Temporary(err):
		return workflow.Changed{}, "", fmt.Errorf("list what changed since %s: %w", from, err)
	case err != nil:
		return workflow.Changed{}, fmt.Sprintf("the commit %s to compare with cannot be had: %s", from, sentence(err)), nil
	case !complete:
		return workflow.Changed{}, fmt.Sprintf("they are more than %d", maxChanged), nil
	}
	return workflow.Changed{Files: names, Known: true}, "", nil
}

// fork is the commit at which the head of a pull request left its target branch. What the round says of its base is
// its author's word, and serves only when the branch holds the head by now, as after a merge.
func (p *Planner) fork(ctx context.Context, t pipeline.Trigger, repo store.RepoBinding, src knot.Source) (at, why string, err error) {
	target := src
	if t.CodeRepo() != repo.Repo {
		if target, err = p.c.Sources.Locate(ctx, repo.Repo); err != nil {
			return "", "", fmt.Errorf("find the knot of %s: %w", repo.Repo, err)
		}
	}
	at, err = p.c.Sources.MergeBase(ctx, src, t.Commit, target, "refs/heads/"+t.Pull.TargetBranch, "")
	if err == nil && at == t.Commit {
		if t.Pull.Base == "" || t.Pull.Base == t.Commit {
			return "", "the target branch holds the proposed commit already", nil
		}
		at, err = p.c.Sources.MergeBase(ctx, src, t.Commit, target, "", t.Pull.Base)
		if err == nil && at == t.Commit {
			return "", "the target branch holds the proposed commit already", nil
		}
	}
	switch {
	case err != nil && knot.Temporary(err):
		return "", "", fmt.Errorf("find where the pull request left its target: %w", err)
	case errors.Is(err, knot.ErrNoMergeBase):
		return "", "the proposed commit and the target branch have no common ancestor", nil
	case err != nil:
		return "", "where the pull request left its target branch cannot be found: " + sentence(err), nil
	}
	return at, "", nil
}
