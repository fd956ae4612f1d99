package xrpc

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
)

// notifyEvent takes an event: a push, which only the repository itself or its knot may tell, or a wish for a
// run, which only somebody who may push can have. It answers once the event is durable.
func (s *Server) notifyEvent() call {
	const nsid = "org.tangled.event.notifyEvent"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.EventNotifyEvent_Input](s, nsid, q)
		if err != nil {
			return nil, eventInput(err)
		}
		if err := s.open(); err != nil {
			return nil, err
		}
		var got Notified
		switch e := in.Event; {
		case e.EventPush != nil:
			got, err = s.pushed(ctx, q.caller, in.Repo, e.EventPush)
		case e.CiTriggerManual != nil:
			got, err = s.asked(ctx, q.caller, in.Repo, e.CiTriggerManual)
		default:
			err = refuse(EventNotSupported, "this spindle does not know events of that kind")
		}
		if err != nil {
			return nil, err
		}
		out := &orgtangled.EventNotifyEvent_CiOutput{Message: opt(clip(got.Message, maxCommand))}
		for _, id := range got.Pipelines {
			out.Pipelines = append(out.Pipelines, string(id))
		}
		return &orgtangled.EventNotifyEvent_Output{EventNotifyEvent_CiOutput: out}, nil
	}}
}

// open refuses new work while the server drains.
func (s *Server) open() error {
	if s.c.Draining != nil && s.c.Draining() {
		return &Error{Code: NotEnoughResources, Message: "the spindle is about to restart and takes no new work; send this again", RetryAfter: retryLater}
	}
	return nil
}

// pushed takes a push that a knot tells of. The DID document of the repository says which knot that is;
// what the caller says of itself counts for nothing.
func (s *Server) pushed(ctx context.Context, caller, repo string, e *orgtangled.EventPush) (Notified, error) {
	switch {
	case e.Repo != repo:
		return Notified{}, refuse(InvalidRequest, "repo and the repo of the event differ")
	case !strings.HasPrefix(e.Ref, "refs/") || !plainRef(e.Ref):
		return Notified{}, refuse(InvalidRequest, "ref is no full name of a ref")
	case !isOID(e.OldSha) || !isOID(e.NewSha) || len(e.OldSha) != len(e.NewSha):
		return Notified{}, refuse(InvalidRequest, "oldSha and newSha must be full object names of one kind, in lower-case hex")
	}
	if caller != repo {
		knot, err := s.c.Knots.KnotDID(ctx, repo)
		if err != nil {
			return Notified{}, upstream(err)
		}
		if knot == "" || caller != knot {
			return Notified{}, refuse(Forbidden, "only the repository or the knot that its DID document names may tell of its pushes")
		}
	}
	p := Push{Repo: repo, Ref: e.Ref, Old: e.OldSha, New: e.NewSha, Options: e.PushOptions, Caller: caller}
	if e.Actor != nil {
		p.Actor = *e.Actor
	}
	return s.c.Ingest.NotifyPush(ctx, p)
}

// asked takes a wish for a run.
func (s *Server) asked(ctx context.Context, caller, repo string, e *orgtangled.CiTriggerManual) (Notified, error) {
	switch {
	case e.Repo != repo:
		return Notified{}, refuse(InvalidRequest, "repo and the repo of the event differ")
	case !isOID(e.Commit):
		return Notified{}, refuse(InvalidRequest, "commit must be a full object name in lower-case hex")
	case e.Ref != nil && (!strings.HasPrefix(*e.Ref, "refs/") || !plainRef(*e.Ref)):
		return Notified{}, refuse(InvalidRequest, "ref is no full name of a ref")
	}
	m := Manual{Repo: repo, Commit: e.Commit, Workflows: e.Workflows, Caller: caller}
	if e.Ref != nil {
		m.Ref = *e.Ref
	}
	seen := make(map[string]bool, len(e.Inputs))
	for _, x := range e.Inputs {
		key := strings.ToUpper(x.Key)
		if !shellName(key) || strings.ContainsRune(x.Value, 0) {
			return Notified{}, refuse(InvalidRequest, "the key of an input is a shell identifier of 1 to 50 characters, and its value holds no NUL")
		}
		if seen[key] {
			return Notified{}, refuse(InvalidRequest, "an input is given twice")
		}
		seen[key] = true
		m.Inputs = append(m.Inputs, pipeline.Input{Key: x.Key, Value: x.Value})
	}
	b, err := s.repo(ctx, repo)
	if err != nil {
		return Notified{}, err
	}
	if err := s.may(ctx, caller, rbac.Push, b.Repo, b.Owner); err != nil {
		return Notified{}, err
	}
	return s.c.Ingest.NotifyManual(ctx, m)
}

// oid is a full object name of SHA-1 or SHA-256.
var oid = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func isOID(s string) bool { return oid.MatchString(s) }
