package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"spindle/pipeline"
)

// errNotFound is a page about something that does not exist.
var errNotFound = errors.New("web: there is no such page")

// view is what a page shows at one moment.
type view struct {
	template string
	title    string
	// sections are the templates that change while the page is open; each renders the element with the id
	// "live-" and its own name.
	sections []string
	// data is given to the templates, twin to readers of JSON.
	data any
	twin any
	// live is whether something may still change.
	live bool
	// mark is the status in the title and the icon; nil for a list.
	mark *mark
	// tail is where the log of a live page goes on.
	tail *tail
}

// target is what an address leads to.
type target interface {
	// load reads what the page shows. Without full it leaves out the lines of a log.
	load(ctx context.Context, full bool) (view, error)
	// concerns tells whether a change is visible on the page.
	concerns(c pipeline.Change) bool
}

// find is the target of an address.
func (w *Web) find(u *url.URL) (t target, twin bool, ok bool) {
	path, twin := strings.CutSuffix(u.EscapedPath(), ".json")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		s, err := url.PathUnescape(p)
		if err != nil || len(s) > 512 {
			return nil, false, false
		}
		parts[i] = s
	}
	q := u.Query()
	switch {
	case path == "/", path == "/index":
		return overviewAt{w: w, query: q}, twin, path == "/" || twin
	case len(parts) == 2 && parts[0] == "r":
		return overviewAt{w: w, repo: parts[1], query: q}, twin, parts[1] != ""
	case len(parts) == 2 && parts[0] == "p":
		return pipelineAt{w: w, id: pipeline.ID(parts[1])}, twin, parts[1] != ""
	case len(parts) == 3 && parts[0] == "p":
		return workflowAt{w: w, id: pipeline.ID(parts[1]), name: parts[2], twin: twin, query: q}, twin, parts[2] != ""
	}
	return nil, false, false
}

func (w *Web) servePage(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Vary", "Cookie")
	rw.Header().Set("Cache-Control", "no-cache")
	if repo, ok := strings.CutSuffix(r.URL.EscapedPath(), "/badge.svg"); ok && strings.HasPrefix(repo, "/r/") {
		w.serveBadge(rw, r, strings.TrimPrefix(repo, "/r/"))
		return
	}
	t, twin, ok := w.find(r.URL)
	if !ok {
		w.problem(rw, r, http.StatusNotFound)
		return
	}
	if f, isLog := t.(workflowAt); isLog && r.URL.Query().Get("raw") == "1" {
		w.serveRaw(rw, r, f)
		return
	}
	// The number is taken before the read: what changes in between is told by the stream.
	since, err := w.c.Pipelines.LastChange(r.Context())
	var v view
	if err == nil {
		v, err = t.load(r.Context(), true)
	}
	switch {
	case errors.Is(err, errNotFound):
		w.problem(rw, r, http.StatusNotFound)
	case err != nil && r.Context().Err() != nil: // the reader is gone
	case err != nil:
		w.c.Log.Error("read a page", "path", r.URL.Path, "err", err)
		w.problem(rw, r, http.StatusInternalServerError)
	case twin:
		w.json(rw, v.twin)
	default:
		w.render(rw, r, http.StatusOK, v, since)
	}
}

func (w *Web) json(rw http.ResponseWriter, v any) {
	rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	e := json.NewEncoder(rw)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the reader is gone: nobody to tell
}

// layout is what the frame around a page is made of.
type layout struct {
	Title, Host, Version string
	Theme, NextTheme     string
	Path                 string // of this page, to come back to
	Twin                 string
	Mark                 *mark
	// Live is the address of the page's event stream; empty when nothing will change.
	Live string
	Data any
}

func (w *Web) render(rw http.ResponseWriter, r *http.Request, code int, v view, since int64) {
	l := layout{
		Title: v.title, Host: w.c.Hostname, Version: w.c.Version, Theme: theme(r), Path: r.URL.RequestURI(), Mark: v.mark, Data: v.data,
	}
	l.NextTheme = themes[l.Theme]
	if v.twin != nil {
		l.Twin = twinURL(r.URL)
	}
	if v.live {
		l.Live = liveURL(r.URL, since, v.tail)
	}
	var b bytes.Buffer
	if err := w.pages[v.template].ExecuteTemplate(&b, "layout", l); err != nil {
		w.c.Log.Error("render a page", "template", v.template, "err", err)
		http.Error(rw, "The page could not be made. The server's log says why.", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(code)
	_, _ = rw.Write(b.Bytes()) // the reader is gone: nobody to tell
}

func twinURL(u *url.URL) string {
	p := u.EscapedPath()
	if p == "/" {
		p = "/index"
	}
	if p += ".json"; u.RawQuery != "" {
		p += "?" + u.RawQuery
	}
	return p
}

// problem is the page for what cannot be shown.
func (w *Web) problem(rw http.ResponseWriter, r *http.Request, code int) {
	type trouble struct{ Head, Text string }
	p := trouble{"There is nothing here", "No page, pipeline or repository has this address. It may have been mistyped, or its data was removed."}
	if code != http.StatusNotFound {
		p = trouble{"This page could not be read", "It is the server’s fault, not yours. Its log says why. Try again in a moment."}
	}
	if strings.HasSuffix(r.URL.Path, ".json") {
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(map[string]string{"error": http.StatusText(code), "message": p.Head + ". " + p.Text})
		return
	}
	w.render(rw, r, code, view{template: "problem", title: p.Head, data: p}, 0)
}
