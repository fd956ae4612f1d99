package xrpc

import (
	"fmt"
	"net/http"
)

// health tells that the process answers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready tells whether the server can do its work now.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	why := ""
	switch {
	case s.c.Draining != nil && s.c.Draining():
		why = "draining"
	case s.c.Ready != nil:
		why = s.c.Ready(r.Context())
	}
	if why != "" {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unready", "reason": why})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// document serves fixed bytes.
func (s *Server) document(d Document) http.HandlerFunc {
	kind := d.ContentType
	if kind == "" {
		kind = "application/json"
	}
	cache := "no-store"
	if d.MaxAge > 0 {
		cache = fmt.Sprintf("public, max-age=%d", int(d.MaxAge.Seconds()))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		b := d.Body()
		if b == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", cache)
		h.Set("X-Content-Type-Options", "nosniff")
		if h.Get("Access-Control-Allow-Origin") == "" {
			h.Set("Access-Control-Allow-Origin", "*")
		}
		_, _ = w.Write(b)
	}
}
