package xrpc

import (
	"context"
	"net/http"

	"spindle/lexicons/shtangled"
)

// oldOwner tells who owns this spindle; it is how others check a claim to own it.
func (s *Server) oldOwner() call {
	return call{nsid: "sh.tangled.owner", verb: http.MethodGet, run: func(context.Context, request) (any, error) {
		if s.c.Owner == "" {
			return nil, refuse(OwnerNotFound, "this spindle has no owner")
		}
		return &shtangled.Owner_Output{Owner: s.c.Owner}, nil
	}}
}
