package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
)

// getWorkflowDefinition tells one workflow file of a repository at a ref.
func (s *Server) getWorkflowDefinition() call {
	const nsid = "org.tangled.ci.getWorkflowDefinition"
	return call{nsid: nsid, verb: http.MethodGet, run: func(ctx context.Context, q request) (any, error) {
		p, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		defs, err := s.definitions(ctx, p.String("repo"), p.String("ref"))
		if err != nil {
			return nil, err
		}
		name := p.String("workflow")
		for _, d := range defs {
			if d.Name == name {
				return &orgtangled.CiGetWorkflowDefinition_Output{Workflow: definitionView(d)}, nil
			}
		}
		return nil, refuse(WorkflowNotFound, "the repository has no workflow "+name+" there")
	}}
}
