package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
)

// cancelPipeline ends a pipeline or some of its workflows. What waits ends at once; what runs is told.
func (s *Server) cancelPipeline() call {
	const nsid = "org.tangled.ci.cancelPipeline"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.CiCancelPipeline_Input](s, nsid, q)
		if err != nil {
			return nil, err
		}
		p, err := s.pipelineOf(ctx, in.Repo, in.Pipeline)
		if err != nil {
			return nil, err
		}
		if err := s.may(ctx, q.caller, rbac.Cancel, p.Repo, p.Owner); err != nil {
			return nil, err
		}
		ws, err := selected(p, in.Workflows)
		if err != nil {
			return nil, err
		}
		alive := false
		for _, w := range ws {
			alive = alive || !w.Status.Terminal()
		}
		ended := refuse(PipelineEnded, "there is nothing to cancel: pipeline "+in.Pipeline+" is "+p.Status.Label())
		if !alive {
			return nil, ended
		}
		n, err := s.c.Verbs.Cancel(ctx, p.ID, in.Workflows, q.caller, "cancelled by "+q.caller, pipeline.Cancelled)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, ended
		}
		return empty{}, nil
	}}
}
