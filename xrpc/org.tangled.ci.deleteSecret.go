package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
)

// deleteSecret removes a secret of a repository.
func (s *Server) deleteSecret() call {
	const nsid = "org.tangled.ci.deleteSecret"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.CiDeleteSecret_Input](s, nsid, q)
		if err != nil {
			return nil, err
		}
		return empty{}, s.remove(ctx, q.caller, in.Repo, in.Key)
	}}
}
