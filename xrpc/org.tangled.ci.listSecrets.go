package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
)

// listSecrets names the secrets of a repository.
func (s *Server) listSecrets() call {
	const nsid = "org.tangled.ci.listSecrets"
	return call{nsid: nsid, verb: http.MethodGet, auth: true, run: func(ctx context.Context, q request) (any, error) {
		p, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		b, all, err := s.list(ctx, q.caller, p.String("repo"))
		if err != nil {
			return nil, err
		}
		out := &orgtangled.CiListSecrets_Output{Secrets: make([]*orgtangled.CiDefs_Secret, 0, len(all))}
		for _, x := range all {
			out.Secrets = append(out.Secrets, &orgtangled.CiDefs_Secret{Repo: b.Repo, Key: x.Name, CreatedAt: timestamp(x.CreatedAt), CreatedBy: x.CreatedBy})
		}
		return out, nil
	}}
}
