package xrpc

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/websocket"

	"spindle/pipeline"
)

// oldLogs is the log stream of the older generation, /logs/{knot}/{rkey}/{name}: one stored line of JSON in
// each text frame. The knot is the one that the pipeline's repository was on.
func (s *Server) oldLogs() http.HandlerFunc {
	return serveStream(s, "/logs", s.admitOldLogs, func(ctx context.Context, st *stream, sub subscription) error {
		return s.follow(ctx, sub.id, sub.names, 0, func(n numbered) error {
			b, err := json.Marshal(n.line)
			if err != nil {
				return err
			}
			return st.send(websocket.TextMessage, b)
		})
	}, noErrorFrame)
}

// noErrorFrame is for streams that have no shape for an error; the close frame names it.
func noErrorFrame(*Error) (int, []byte, error) { return 0, nil, nil }

// admitOldLogs checks the path of an older log stream.
func (s *Server) admitOldLogs(r *http.Request) (subscription, error) {
	knot, rkey, name := chi.URLParam(r, "knot"), chi.URLParam(r, "rkey"), chi.URLParam(r, "name")
	missing := refuse(PipelineNotFound, "there is no such pipeline of that knot here")
	if _, err := syntax.ParseTID(rkey); err != nil {
		return subscription{}, missing
	}
	p, ok, err := s.c.Pipelines.Pipeline(r.Context(), pipeline.ID(rkey))
	if err != nil {
		return subscription{}, err
	}
	knot = strings.ReplaceAll(strings.TrimPrefix(knot, "did:web:"), "%3A", ":")
	if !ok || !strings.EqualFold(knot, knotHost(p)) {
		return subscription{}, missing
	}
	// Workflows of that generation are named by their file.
	for _, w := range p.Workflows {
		if w.Name == name || strings.HasSuffix(w.File, "/"+name) {
			return subscription{id: p.ID, names: []string{w.Name}}, nil
		}
	}
	return subscription{}, refuse(WorkflowNotFound, "the pipeline has no such workflow")
}

// knotHost is the host name of the knot that the repository of p was on.
func knotHost(p pipeline.Pipeline) string {
	host := p.Knot
	if _, rest, ok := strings.Cut(host, "://"); ok {
		host = rest
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "did:web:"), "/")
}
