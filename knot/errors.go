package knot

import (
	"errors"
	"fmt"
	"syscall"

	"spindle/identity"
)

// Sentinel errors; match with errors.Is. Temporary tells which are worth another try.
var (
	// ErrGitMissing means that the git program was not found or does not run.
	ErrGitMissing = errors.New("knot: git not found")
	// ErrGitTooOld means that the git program is older than MinGit.
	ErrGitTooOld = errors.New("knot: git too old")
	// ErrInvalid means that a name, ref, hash or URL is not in the form this package accepts.
	ErrInvalid = errors.New("knot: invalid input")
	// ErrCommitGone means that the knot does not hand out that commit, or no longer.
	ErrCommitGone = errors.New("knot: commit not found on the knot")
	// ErrRefGone means that the knot has no such ref.
	ErrRefGone = errors.New("knot: ref not found on the knot")
	// ErrRepoNotFound means that the knot does not serve the repository.
	ErrRepoNotFound = errors.New("knot: repository not found on the knot")
	// ErrRefused means that the host answered and said no: a 4xx other than 408 and 429, or a login.
	ErrRefused = errors.New("knot: the host refused")
	// ErrRedirected means that the host answered with a redirect, which is never followed.
	ErrRedirected = errors.New("knot: the host redirects")
	// ErrDenied means that our own guard does not let us reach the host.
	ErrDenied = errors.New("knot: host denied by the network guard")
	// ErrUnreachable means that the host did not answer, or broke off. Temporary.
	ErrUnreachable = errors.New("knot: host unreachable")
	// ErrTimeout means that the fetch took longer than allowed. Temporary.
	ErrTimeout = errors.New("knot: fetch took too long")
	// ErrDiskFull means that our own disk has no room for what was fetched. Temporary.
	ErrDiskFull = errors.New("knot: no room on the spindle's disk")
	// ErrTooLarge means that what was fetched, or a part of it, is over a limit.
	ErrTooLarge = errors.New("knot: too large")
	// ErrCorrupt means that objects on our disk or from the knot do not hold together. Temporary: the
	// cached repository was deleted and will be fetched afresh.
	ErrCorrupt = errors.New("knot: broken git objects")
	// ErrSubmodule means that a submodule cannot be checked out. The detail is a *SubmoduleError.
	ErrSubmodule = errors.New("knot: submodule")
	// ErrBind means that a repository is not bound. The detail is a *BindError.
	ErrBind = errors.New("knot: repository not bound")
)

// GitError is a failed git command. Its Kind is one of the sentinel errors.
type GitError struct {
	Op     string // what was being done, such as "fetch"
	Kind   error  // one of the sentinel errors; never nil
	Detail string // git's own last words, cut and without control characters; may be empty

	exit int // exit status, -1 for a signal
}

// Error implements error.
func (e *GitError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%v (git %s)", e.Kind, e.Op)
	}
	return fmt.Sprintf("%v (git %s: %s)", e.Kind, e.Op, e.Detail)
}

// Unwrap gives the kind.
func (e *GitError) Unwrap() error { return e.Kind }

// permanent lists what does not become better by asking again.
var permanent = []error{
	ErrGitMissing, ErrGitTooOld, ErrInvalid, ErrCommitGone, ErrRefGone, ErrRepoNotFound, ErrRefused,
	ErrRedirected, ErrDenied, ErrTooLarge, ErrSubmodule, ErrNoMergeBase,
}

// Temporary says whether the same call may succeed later without anybody mending anything: an
// unreachable host, a timeout, a full disk. An error that this package does not know counts as temporary,
// so that a push is not lost to a failure nobody thought of; nil is not temporary.
func Temporary(err error) bool {
	if err == nil {
		return false
	}
	var b *BindError
	if errors.As(err, &b) {
		return b.Temporary
	}
	var s *SubmoduleError
	if errors.As(err, &s) {
		return s.Temporary
	}
	for _, p := range permanent {
		if errors.Is(err, p) {
			return false
		}
	}
	// What the identity package knows and does not call temporary is decided.
	return identity.Reason(err) == "Other" || identity.Temporary(err)
}

// sentences says for people what each kind of failure means, the more special first.
var sentences = [...]struct {
	err  error
	text string
}{
	{ErrCommitGone, "the knot does not have this commit, or no longer hands it out"},
	{ErrRefGone, "the knot has no such branch or tag"},
	{ErrRepoNotFound, "the knot does not serve this repository"},
	{ErrRedirected, "the knot answers with a redirect, which is never followed"},
	{ErrDenied, "the address of the knot may not be reached from here"},
	{ErrRefused, "the knot refuses to hand out this repository"},
	{ErrTooLarge, "what the knot sends is larger than allowed here"},
	{ErrTimeout, "the knot takes too long to answer"},
	{ErrCorrupt, "the knot sends broken git objects"},
	{ErrDiskFull, "the disk of this spindle is full; its owner can make room"},
	{syscall.ENOSPC, "the disk of this spindle is full; its owner can make room"},
	{ErrUnreachable, "the knot cannot be reached"},
	{ErrInvalid, "the commit, the branch or the address of the knot is not in a form that is accepted here"},
	{ErrGitTooOld, "git on this machine is too old"},
	{ErrGitMissing, "git on this machine does not run"},
}

// Sentence says for the user what err means: lower case, no full stop, nothing secret. It is false for an
// error that is not of this package.
func Sentence(err error) (string, bool) {
	var s *SubmoduleError
	if errors.As(err, &s) {
		return s.Sentence, true
	}
	var b *BindError
	if errors.As(err, &b) {
		return b.sentence(), true
	}
	for _, e := range sentences {
		if errors.Is(err, e.err) {
			return e.text, true
		}
	}
	return "", false
}
