package oidc

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"spindle/identity"
	"spindle/pipeline"
)

// Claims are the facts of one run. All but Audience come from the control plane's own records.
type Claims struct {
	// Audience is who the token is for, as the workflow names it: exactly one.
	Audience string
	// Repo is the DID of the repo whose code runs.
	Repo string
	// Owner is the DID of the repo's owner.
	Owner string
	// Ref is the full ref ("refs/heads/main", "refs/tags/v1"), "" for a run of a bare commit. For a pull
	// request it is left out of the token: its branch has no standing.
	Ref string
	// SHA is the commit, in full.
	SHA string
	// Event is what started the run.
	Event pipeline.Kind
	// Actor is the DID of who started the run, "" if nobody did (schedule).
	Actor string
	// ActorSource is who says so. It must be there if Actor is.
	ActorSource pipeline.Source
	// Workflow is the workflow's file name.
	Workflow string
	// Pipeline is the pipeline's id.
	Pipeline string
	// Trust is the run's trust; below TrustBranch there is no token.
	Trust pipeline.Trust
	// Runner is the kind of machine: "self-hosted", or what the operator calls it.
	Runner string
}

// payload is what a token says beside the registered claims.
type payload struct {
	Repository  string `json:"repository"`
	Owner       string `json:"repository_owner"`
	Ref         string `json:"ref,omitempty"`
	RefType     string `json:"ref_type,omitempty"`
	SHA         string `json:"sha"`
	Actor       string `json:"actor,omitempty"`
	ActorSource string `json:"actor_source,omitempty"`
	Workflow    string `json:"workflow"`
	Pipeline    string `json:"pipeline"`
	Event       string `json:"event_name"`
	Trust       string `json:"trust"`
	Runner      string `json:"runner_environment"`
}

const (
	branches = "refs/heads/"
	tags     = "refs/tags/"
	maxText  = 255
)

var (
	shaText = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// payload checks every fact. The error is ErrUnrecordable.
func (c *Claims) payload(dev bool) (payload, error) {
	refuse := func(what string) (payload, error) { return payload{}, fmt.Errorf("%w: %s", ErrUnrecordable, what) }
	switch {
	case !c.Trust.Tokens():
		return refuse("code is not trusted")
	case identity.CheckDID(c.Repo, dev) != nil:
		return refuse("repo is no DID")
	case identity.CheckDID(c.Owner, dev) != nil:
		return refuse("owner is no DID")
	case c.Actor != "" && identity.CheckDID(c.Actor, dev) != nil:
		return refuse("actor is no DID")
	case !c.sourced():
		return refuse("source of the actor")
	case !shaText.MatchString(c.SHA):
		return refuse("commit")
	case c.Ref != "" && !validRef(c.Ref):
		return refuse("ref")
	case c.Event != pipeline.Push && c.Event != pipeline.PullRequest && c.Event != pipeline.Manual && c.Event != pipeline.Schedule:
		return refuse("event")
	case !word.MatchString(c.Workflow), !word.MatchString(c.Pipeline), !word.MatchString(c.Runner):
		return refuse("workflow, pipeline or runner")
	}
	ref := c.Ref
	if c.Event == pipeline.PullRequest {
		ref = ""
	}
	return payload{
		Repository: c.Repo, Owner: c.Owner, Ref: ref, RefType: refType(ref), SHA: c.SHA, Actor: c.Actor, ActorSource: string(c.ActorSource),
		Workflow: c.Workflow, Pipeline: c.Pipeline, Event: string(c.Event), Trust: c.Trust.String(), Runner: c.Runner,
	}, nil
}

// sourced says whether it is known who asserts the actor.
func (c *Claims) sourced() bool {
	switch c.ActorSource {
	case pipeline.FromKnot, pipeline.FromCaller, pipeline.FromRecord, pipeline.FromServer, pipeline.FromStream, pipeline.FromClaim:
		return true
	case "":
		return c.Actor == ""
	default:
		return false
	}
}

// subject is sub; see the package comment.
func (c *Claims) subject() string {
	base := "repo:" + c.Repo
	switch {
	case c.Event == pipeline.PullRequest:
		return base + ":pull_request"
	case c.Ref != "":
		return base + ":ref:" + c.Ref
	default:
		return base + ":commit:" + c.SHA
	}
}

func refType(ref string) string {
	switch {
	case strings.HasPrefix(ref, branches):
		return "branch"
	case strings.HasPrefix(ref, tags):
		return "tag"
	default:
		return ""
	}
}

// validRef accepts full names of branches and tags that pass git's own rules (git-check-ref-format) and are
// plain ASCII: a name that only looks like another must not get into a policy. The rules keep out the
// delimiter ':' and the wildcards '*' and '?' as well.
func validRef(ref string) bool {
	name, ok := strings.CutPrefix(ref, branches)
	if !ok {
		name, ok = strings.CutPrefix(ref, tags)
	}
	if !ok || len(ref) > maxText || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for _, r := range name {
		if r <= ' ' || r > '~' || strings.ContainsRune(`~^:?*[\`, r) {
			return false
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// checkAudience refuses audiences at which the token could be taken for something else: DIDs and service
// references are the audiences of service tokens, and our own host must never accept what a job can ask for.
func (i *Issuer) checkAudience(aud string) error {
	lower := strings.ToLower(aud)
	switch {
	case aud == "" || len(aud) > maxText:
		return fmt.Errorf("%w: %d characters", ErrAudience, len(aud))
	case strings.ContainsFunc(aud, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%w: not printable ASCII", ErrAudience)
	case strings.HasPrefix(lower, "did:"), strings.Contains(aud, "#"):
		return fmt.Errorf("%w: a DID or service reference", ErrAudience)
	case i.isOurs(lower):
		return fmt.Errorf("%w: this spindle itself", ErrAudience)
	}
	return nil
}

// isOurs says whether an audience in lower case names our host, as a URL or bare.
func (i *Issuer) isOurs(aud string) bool {
	for _, text := range []string{aud, "https://" + aud, "https:" + aud} {
		u, err := url.Parse(text)
		if err == nil && strings.TrimSuffix(u.Hostname(), ".") == i.host {
			return true
		}
	}
	return false
}
