package pipeline

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTrigger is a trigger that must not be run as it stands.
var ErrTrigger = errors.New("pipeline: the trigger cannot be run")

// maxRef bounds a ref's name, in bytes, as the network's lexicons do.
const maxRef = 2560

// Check refuses a trigger that nothing may be run for: an unknown kind, a commit that is no full object name
// or that stands for nothing (a branch that was deleted), a ref that is no full ref name, a pull request
// without its part or another trigger with one. The error is ErrTrigger and names the field, never more of
// its value than is needed. Who accepts triggers proves more than this; whoever runs them asks at least this.
func (t Trigger) Check() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrTrigger, what) }
	switch t.Kind {
	case Push, PullRequest, Manual, Schedule:
	default:
		return bad("its kind is unknown")
	}
	switch {
	case !strings.HasPrefix(t.Repo, "did:"):
		return bad("its repository is not a DID")
	case !objectName(t.Commit) || zeros(t.Commit):
		return bad("its commit is not a full object name")
	case t.Old != "" && !objectName(t.Old):
		return bad("the commit before it is not a full object name")
	case t.Ref == "" && t.Kind == Push:
		return bad("a push has no ref")
	case t.Ref != "" && !fullRef(t.Ref):
		return bad("its ref is not a full ref name")
	case (t.Pull != nil) != (t.Kind == PullRequest):
		return bad("its kind and its pull request do not fit")
	}
	if p := t.Pull; p != nil {
		if !strings.HasPrefix(p.SourceRepo, "did:") {
			return bad("the pull request's repository is not a DID")
		}
		if !objectName(p.Head) || zeros(p.Head) || p.Head != t.Commit {
			return bad("the pull request's head is not the commit")
		}
	}
	for _, in := range t.Inputs {
		if strings.ContainsRune(in.Key+in.Value, 0) {
			return bad("an input holds a NUL byte")
		}
	}
	return nil
}

// objectName tells whether s is a full object name of git, of either hash, in lower case.
func objectName(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// zeros tells whether s stands for no object.
func zeros(s string) bool { return strings.Trim(s, "0") == "" }

// fullRef tells whether s is a ref name below refs/ that git would take (git-check-ref-format(1)).
func fullRef(s string) bool {
	name, ok := strings.CutPrefix(s, "refs/")
	if !ok || len(s) > maxRef || strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.HasSuffix(s, ".") {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r)
	})
}
