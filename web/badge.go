package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"unicode/utf8"

	"spindle/pipeline"
	"spindle/store"
)

// badge is the picture that a README shows: the state of a repository's default branch.
var badge = template.Must(template.New("badge").Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="20" role="img" aria-label="spindle: {{.Word}}">` +
		`<title>spindle: {{.Word}}</title><rect width="{{.Width}}" height="20" rx="4" fill="#2b3037"/>` +
		`<path d="M56 0h{{.Right}}a4 4 0 0 1 4 4v12a4 4 0 0 1-4 4H56z" fill="{{.Fill}}"/>` +
		`<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="8" y="14">spindle</text>` +
		`<text x="63" y="14">{{.Word}}</text></g></svg>`))

// serveBadge draws the state of the newest push to the default branch (or to ?branch=). A repository without
// pipelines, known or not, has a grey one.
func (w *Web) serveBadge(rw http.ResponseWriter, r *http.Request, escaped string) {
	repo, err := url.PathUnescape(escaped)
	if err != nil || len(repo) > 512 {
		http.Error(rw, "that is not a repository", http.StatusBadRequest)
		return
	}
	ps, _, err := w.c.Pipelines.Pipelines(r.Context(), store.Query{Repo: repo, Kinds: []pipeline.Kind{pipeline.Push}, Limit: listed})
	if err != nil {
		w.c.Log.Error("read the pipelines for a badge", "repo", repo, "err", err)
		http.Error(rw, "the badge could not be made", http.StatusInternalServerError)
		return
	}
	word, fill := badgeOf(ps, r.URL.Query().Get("branch"))
	width := 70 + 7*utf8.RuneCountInString(word)
	var b bytes.Buffer
	err = badge.Execute(&b, struct {
		Word, Fill   string
		Width, Right int
	}{word, fill, width, width - 60})
	if err != nil {
		w.c.Log.Error("draw a badge", "err", err)
		http.Error(rw, "the badge could not be made", http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(b.Bytes())
	h := rw.Header()
	h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	h.Set("Cache-Control", "public, max-age=30")
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin") // it is made to be shown elsewhere
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = rw.Write(b.Bytes()) // the reader is gone: nobody to tell
}

// badgeOf is the word and the colour for the newest of ps on branch; an empty branch is the default one.
func badgeOf(ps []pipeline.Pipeline, branch string) (word, fill string) {
	for _, p := range ps {
		want := branch
		if want == "" {
			want = p.DefaultBranch
		}
		if p.Trigger.RefType() != "branch" || want != "" && p.Trigger.RefName() != want || p.Status == pipeline.Superseded {
			continue
		}
		switch p.Status {
		case pipeline.Passed:
			return "passing", "#17703a"
		case pipeline.Failed, pipeline.Timeout, pipeline.Invalid:
			return "failing", "#b42318"
		case pipeline.Error:
			return "error", "#9c4221"
		case pipeline.Running, pipeline.Preparing:
			return "running", "#0b5cad"
		case pipeline.Held:
			return "needs approval", "#6b3fa0"
		}
		return p.Status.Label(), "#56606c"
	}
	return "no runs", "#56606c"
}
