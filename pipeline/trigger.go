package pipeline

import (
	"strings"
	"time"
)

// Kind is what sort of reason a trigger is.
type Kind string

// The kinds of trigger, spelled as the workflow language spells them.
const (
	Push        Kind = "push"
	PullRequest Kind = "pull_request"
	Manual      Kind = "manual"
	Schedule    Kind = "schedule"
)

// Source tells who asserted a trigger's actor.
type Source string

// The sources. A knot's word counts for the repositories it hosts and for nothing else.
const (
	FromKnot   Source = "knot"
	FromCaller Source = "service_auth"
	FromRecord Source = "record"
	FromServer Source = "server"
	// FromStream is a push event that the repository's key has signed; FromClaim is one of a knot's older stream,
	// which nobody signs: the connection says whose it is, and the knot was asked whether the ref holds the commit.
	FromStream Source = "knot_stream"
	FromClaim  Source = "knot_claim"
)

// Streamed tells whether the trigger was read from a knot's event stream, which tells when things happened and
// may tell them late and again.
func (s Source) Streamed() bool { return s == FromStream || s == FromClaim }

// Input is one value given to a manual run.
type Input struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Pull is the pull request part of a trigger. Source and target are apart on purpose: a branch name of a
// fork means nothing in the target repository.
type Pull struct {
	// Ticket is the at-uri of the pull request's thread, and Round that of the patch record.
	Ticket string `json:"ticket,omitempty"`
	Round  string `json:"round"`
	// RoundCID pins the record that was proven.
	RoundCID string `json:"roundCid"`
	// SourceRepo is the DID of the repository that holds the head commit.
	SourceRepo   string `json:"sourceRepo"`
	SourceBranch string `json:"sourceBranch,omitempty"`
	TargetBranch string `json:"targetBranch"`
	// Base and Head are commits.
	Base string `json:"base"`
	Head string `json:"head"`
	// Action is opened, reopened, synchronize, closed or merged.
	Action string `json:"action"`
}

// Trigger is one normalized reason to run.
type Trigger struct {
	// Key identifies the trigger for ever: the same reason, told twice, has the same key.
	Key  string `json:"key"`
	Kind Kind   `json:"kind"`
	// Repo is the DID of the repository whose workflows are asked for.
	Repo string `json:"repo"`
	// Actor is the DID that caused it, as Source asserts.
	Actor       string `json:"actor,omitempty"`
	ActorSource Source `json:"actorSource,omitempty"`
	// Ref is a full ref name; empty for a manual run of a bare commit.
	Ref string `json:"ref,omitempty"`
	// Commit is the full object name to run, Old what the ref held before (zeros or empty: nothing).
	Commit string `json:"commit"`
	Old    string `json:"old,omitempty"`
	// Options are the push options in the order given.
	Options []string `json:"options,omitempty"`
	Pull    *Pull    `json:"pull,omitempty"`
	Inputs  []Input  `json:"inputs,omitempty"`
	// Only, if not empty, names the workflows asked for; others are left out.
	Only []string `json:"only,omitempty"`
	// RetryOf is the pipeline this one repeats.
	RetryOf ID `json:"retryOf,omitempty"`
	// At is when the source says that it happened.
	At time.Time `json:"at"`
	// Late is a trigger that nobody told at its time: it was found by looking, after a gap.
	Late bool `json:"late,omitempty"`
}

// RefType is "branch", "tag" or "" when the trigger has no ref of either kind.
func (t Trigger) RefType() string {
	switch {
	case strings.HasPrefix(t.Ref, "refs/heads/"):
		return "branch"
	case strings.HasPrefix(t.Ref, "refs/tags/"):
		return "tag"
	}
	return ""
}

// RefName is the ref without refs/heads/ or refs/tags/.
func (t Trigger) RefName() string {
	if s, ok := strings.CutPrefix(t.Ref, "refs/heads/"); ok {
		return s
	}
	if s, ok := strings.CutPrefix(t.Ref, "refs/tags/"); ok {
		return s
	}
	return t.Ref
}

// CodeRepo is the DID of the repository that holds the commit: the fork's for a pull request.
func (t Trigger) CodeRepo() string {
	if t.Pull != nil && t.Pull.SourceRepo != "" {
		return t.Pull.SourceRepo
	}
	return t.Repo
}
