package xrpc

import (
	"context"
	"net/http"
	"strings"

	"spindle/lexicons/orgtangled"
)

// listWorkflowDefinitions tells the workflow files of a repository at a ref, with what is wrong with them.
func (s *Server) listWorkflowDefinitions() call {
	const nsid = "org.tangled.ci.listWorkflowDefinitions"
	return call{nsid: nsid, verb: http.MethodGet, run: func(ctx context.Context, q request) (any, error) {
		p, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		defs, err := s.definitions(ctx, p.String("repo"), p.String("ref"))
		if err != nil {
			return nil, err
		}
		out := &orgtangled.CiListWorkflowDefinitions_Output{Workflows: make([]*orgtangled.CiDefs_WorkflowDefinition, 0, len(defs))}
		for _, d := range defs {
			out.Workflows = append(out.Workflows, definitionView(d))
		}
		return out, nil
	}}
}

// definitions are the workflow files of a repository that is served here.
func (s *Server) definitions(ctx context.Context, did, ref string) ([]Definition, error) {
	if ref == "" {
		ref = "HEAD"
	}
	if !plainRef(ref) {
		return nil, refuse(RefNotFound, "that is no name that a ref can have")
	}
	b, err := s.repo(ctx, did)
	if err != nil {
		return nil, err
	}
	return s.c.Definitions.Definitions(ctx, b, ref)
}

// plainRef tells whether git could have a ref of this name (git-check-ref-format(1)), or a commit.
func plainRef(ref string) bool {
	if ref == "" || ref == "@" || len(ref) > 1024 || strings.ContainsAny(ref, " ~^:?*[\\\x7f") || strings.Contains(ref, "..") ||
		strings.Contains(ref, "@{") || strings.HasSuffix(ref, ".") {
		return false
	}
	for _, r := range ref {
		if r < ' ' {
			return false
		}
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || part[0] == '-' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
