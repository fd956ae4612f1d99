package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/rbac"
)

// retryPipeline runs an ended pipeline again, as it was planned then, with the caller as actor. One that
// needed an approval and never had it cannot be started this way.
func (s *Server) retryPipeline() call {
	const nsid = "org.tangled.ci.retryPipeline"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.CiRetryPipeline_Input](s, nsid, q)
		if err != nil {
			return nil, err
		}
		if err := s.open(); err != nil {
			return nil, err
		}
		p, err := s.pipelineOf(ctx, in.Repo, in.Pipeline)
		if err != nil {
			return nil, err
		}
		if err := s.may(ctx, q.caller, rbac.Push, p.Repo, p.Owner); err != nil {
			return nil, err
		}
		ws, err := selected(p, in.Workflows)
		if err != nil {
			return nil, err
		}
		if err := retryable(p, ws); err != nil {
			return nil, err
		}
		id, err := s.c.Retries.Retry(ctx, p, in.Workflows, q.caller)
		if err != nil {
			return nil, err
		}
		return &orgtangled.CiRetryPipeline_Output{Pipeline: string(id)}, nil
	}}
}

// retryable tells whether these workflows of p can run again.
func retryable(p pipeline.Pipeline, ws []pipeline.Workflow) error {
	if p.Trust == pipeline.TrustFork {
		return refuse(PipelineNotRetryable, "pipeline "+string(p.ID)+" was never approved; approve a run of it instead")
	}
	runs := false
	for _, w := range ws {
		if !w.Status.Terminal() {
			return refuse(PipelineNotRetryable, "workflow "+w.Name+" has not ended; cancel it or wait")
		}
		runs = runs || (w.Status != pipeline.Invalid && w.Status != pipeline.Skipped)
	}
	if !runs {
		return refuse(PipelineNotRetryable, "no workflow of the pipeline could run then, so none can run again; push a corrected file")
	}
	return nil
}
