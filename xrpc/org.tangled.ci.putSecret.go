package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/orgtangled"
)

// putSecret sets a secret of a repository.
func (s *Server) putSecret() call {
	const nsid = "org.tangled.ci.putSecret"
	return call{nsid: nsid, verb: http.MethodPost, auth: true, run: func(ctx context.Context, q request) (any, error) {
		in, err := input[orgtangled.CiPutSecret_Input](s, nsid, q)
		if err != nil {
			return nil, secretInput(err)
		}
		return empty{}, s.put(ctx, q.caller, in.Repo, in.Key, in.Value)
	}}
}

// secretInput keeps what the caller sent out of the error: it holds a secret.
func secretInput(err error) error {
	e := public(err)
	if e.Code == InvalidRequest {
		return refuse(InvalidRequest, "the body must hold repo, key (1 to 50 characters) and value (8 to 4096 bytes), each a string")
	}
	return err
}
