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

// approvePipeline lets held workflows of a pipeline start. Nobody approves code from outside that they themselves bring.
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
		ws, err := selected(p, in.Workflows)
		if err != nil {
			return nil, err
		}
		if err := approvable(p, ws, q.caller); err != nil {
			return nil, err
		}
		err = s.c.Verbs.Approve(ctx, p.ID, q.caller, in.Workflows, admit)
		if errors.Is(err, store.ErrNotBlocked) {
			return nil, refuse(PipelineNotBlocked, "nothing of pipeline "+in.Pipeline+" waits for an approval any more")
		}
		if err != nil {
			return nil, err
		}
		return empty{}, nil
	}}
}

// approvable tells whether there is one among ws that waits for an approval, and whether the caller is shut out of all
// of them. Whoever gives the approval checks both again.
func approvable(p pipeline.Pipeline, ws []pipeline.Workflow, caller string) error {
	held, own := false, p.Trigger.Actor == caller
	for _, w := range ws {
		if w.Status != pipeline.Held {
			continue
		}
		held = true
		if w.Gate == pipeline.GateApproval && w.Rules.Approval != nil && !w.Rules.Approval.OthersOnly {
			own = false
		}
	}
	switch {
	case !held && len(ws) < len(p.Workflows):
		return refuse(PipelineNotBlocked, "none of these workflows of pipeline "+string(p.ID)+" waits for an approval")
	case !held:
		return refuse(PipelineNotBlocked, "pipeline "+string(p.ID)+" does not wait for an approval: it is "+p.Status.Label())
	case own:
		return refuse(Forbidden, "nobody approves a run that they caused themselves; another collaborator of the repository can")
	}
	return nil
}
