package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/shtangled"
)

// oldAddSecret is the older name of org.tangled.ci.putSecret. The repository may be named by at-uri.
func (s *Server) oldAddSecret() call {
	const nsid = "sh.tangled.repo.addSecret"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[shtangled.RepoAddSecret_Input](s, nsid, q)
		if err != nil {
			return nil, secretInput(err)
		}
		return empty{}, s.put(ctx, q.caller, in.Repo, in.Key, in.Value)
	}}
}
