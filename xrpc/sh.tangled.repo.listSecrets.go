package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/shtangled"
)

// oldListSecrets is the older name of org.tangled.ci.listSecrets. It calls the repository as it was called.
func (s *Server) oldListSecrets() call {
	const nsid = "sh.tangled.repo.listSecrets"
	return call{nsid: nsid, verb: http.MethodGet, auth: true, run: func(ctx context.Context, q request) (any, error) {
		p, err := s.params(nsid, q)
		if err != nil {
			return nil, err
		}
		name := p.String("repo")
		_, all, err := s.list(ctx, q.caller, name)
		if err != nil {
			return nil, err
		}
		out := &shtangled.RepoListSecrets_Output{Secrets: make([]*shtangled.RepoListSecrets_Secret, 0, len(all))}
		for _, x := range all {
			out.Secrets = append(out.Secrets, &shtangled.RepoListSecrets_Secret{Repo: name, Key: x.Name, CreatedAt: timestamp(x.CreatedAt), CreatedBy: x.CreatedBy})
		}
		return out, nil
	}}
}
