package xrpc

import (
	"context"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/pipeline"
)

// pipelineOf is the pipeline with this id if it belongs to the repository. One of another repository is not
// found, as if it did not exist.
func (s *Server) pipelineOf(ctx context.Context, repo, id string) (pipeline.Pipeline, error) {
	missing := refuse(PipelineNotFound, "the repository has no pipeline "+clip(id, 64)+" here")
	if _, err := syntax.ParseTID(id); err != nil {
		return pipeline.Pipeline{}, missing
	}
	p, ok, err := s.c.Pipelines.Pipeline(ctx, pipeline.ID(id))
	if err != nil {
		return pipeline.Pipeline{}, err
	}
	if !ok || p.Repo != repo {
		return pipeline.Pipeline{}, missing
	}
	return p, nil
}

// selected is the workflows of p with these names; no names select all.
func selected(p pipeline.Pipeline, names []string) ([]pipeline.Workflow, error) {
	if len(names) == 0 {
		return p.Workflows, nil
	}
	byName := make(map[string]pipeline.Workflow, len(p.Workflows))
	for _, w := range p.Workflows {
		byName[w.Name] = w
	}
	var out []pipeline.Workflow
	for _, name := range names {
		w, ok := byName[name]
		if !ok {
			return nil, refuse(WorkflowNotFound, "the pipeline has no workflow "+clip(name, 255))
		}
		delete(byName, name) // a name given twice is not found the second time
		out = append(out, w)
	}
	return out, nil
}
