package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/shtangled"
)

// oldRemoveSecret is the older name of org.tangled.ci.deleteSecret.
func (s *Server) oldRemoveSecret() call {
	const nsid = "sh.tangled.repo.removeSecret"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[shtangled.RepoRemoveSecret_Input](s, nsid, q)
		if err != nil {
			return nil, err
		}
		return empty{}, s.remove(ctx, q.caller, in.Repo, in.Key)
	}}
}
