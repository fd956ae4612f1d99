package xrpc

import (
	"context"
	"net/http"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/store"
)

// queryPipelines lists pipelines of a repository, newest first. The cursor is the id of the last one told.
// A repository that is not served here has no pipelines.
func (s *Server) queryPipelines() call {
	const nsid = "org.tangled.ci.queryPipelines"
	return call{nsid: nsid, verb: http.MethodGet, run: func(ctx context.Context, q request) (any, error) {
		p, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		want := store.Query{Repo: p.String("repo"), Commits: p.Strings("commits"), Limit: int(p.Int("limit"))}
		if c := p.String("cursor"); c != "" {
			if _, err := syntax.ParseTID(c); err != nil {
				return nil, refuse(InvalidRequest, "the cursor is not from an answer of this method")
			}
			want.Before = pipeline.ID(c)
		}
		for _, k := range p.Strings("triggers") {
			want.Kinds = append(want.Kinds, pipeline.Kind(k))
		}
		for _, st := range p.Strings("statuses") {
			want.Statuses = append(want.Statuses, pipeline.Status(st))
		}
		list, total, err := s.c.Pipelines.Pipelines(ctx, want)
		if err != nil {
			return nil, err
		}
		out := &orgtangled.CiQueryPipelines_Output{Total: int64(total), Pipelines: make([]*orgtangled.CiDefs_Pipeline, 0, len(list))}
		for _, x := range list {
			out.Pipelines = append(out.Pipelines, pipelineView(x, false))
		}
		if len(list) == want.Limit {
			out.Cursor = opt(string(list[len(list)-1].ID))
		}
		return out, nil
	}}
}
