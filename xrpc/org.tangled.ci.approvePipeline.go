package xrpc

import (
	"context"
	"errors"
	"net/http"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// approvePipeline lets a held pipeline start. Nobody approves what they themselves caused.
func (s *Server) approvePipeline() call {
	const nsid = "org.tangled.ci.approvePipeline"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.CiApprovePipeline_Input](s, nsid, q)
		if err != nil {
			return nil, err
		}
		p, err := s.pipelineOf(ctx, in.Repo, in.Pipeline)
		if err != nil {
			return nil, err
		}
		admit := func(g *rbac.Gate, p pipeline.Pipeline) rbac.Decision {
			return g.May(q.caller, rbac.Approve, rbac.Repo{DID: p.Repo, Owner: p.Owner})
		}
		if err := s.may(ctx, q.caller, rbac.Approve, p.Repo, p.Owner); err != nil {
			return nil, err
		}
		if p.Trigger.Actor == q.caller {
			return nil, refuse(Forbidden, "nobody approves a run that they caused themselves; another collaborator of the repository can")
		}
		err = s.c.Verbs.Approve(ctx, p.ID, q.caller, admit)
		if errors.Is(err, store.ErrNotBlocked) {
			return nil, refuse(PipelineNotBlocked, "pipeline "+in.Pipeline+" does not wait for an approval: it is "+p.Status.Label())
		}
		if err != nil {
			return nil, err
		}
		return empty{}, nil
	}}
}
