package xrpc

import (
	"context"
	"net/http"
)

// getPipeline tells one pipeline with the steps of its workflows.
func (s *Server) getPipeline() call {
	const nsid = "org.tangled.ci.getPipeline"
	return call{nsid: nsid, verb: http.MethodGet, run: func(ctx context.Context, q request) (any, error) {
		params, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		p, err := s.pipelineOf(ctx, params.String("repo"), params.String("pipeline"))
		if err != nil {
			return nil, err
		}
		return pipelineView(p, true), nil
	}}
}
