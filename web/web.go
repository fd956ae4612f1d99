package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"spindle/internal/clock"
)

// policy is the Content-Security-Policy of every answer: nothing but the files of this package.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

//go:embed templates assets
var files embed.FS

// Config is what New needs. Pipelines, Repos, Logs, Hostname, Clock and Log are required.
type Config struct {
	Pipelines Pipelines
	Repos     Repos
	Logs      Logs
	// Names gives handles to show instead of DIDs; nil shows DIDs.
	Names Names
	// Health is shown at the foot of the overview; nil shows nothing.
	Health Health
	// Hostname is the server's name, as people write it into a repository's settings.
	Hostname string
	// Version is shown at the foot of every page; empty shows nothing.
	Version string
	// MaxStreams bounds the open event streams; 0 means 1024. Further ones are told to come back.
	MaxStreams int
	// Client names who sent a request, for a bound of streams for each client; nil sets no such bound.
	Client func(*http.Request) string
	// PerClient bounds the streams of one client; 0 means 64.
	PerClient int
	// MaxPages bounds the pages and downloads that are made at the same time, PagesPerClient those for one
	// client; 0 means 256 and 16. Further ones are told to come back.
	MaxPages, PagesPerClient int
	// SendWithin is how long a reader may take for one message of a stream or one piece of a download; 0 means 10 s.
	SendWithin time.Duration
	Clock      clock.Clock
	Log        *slog.Logger
}

// Web serves the pages. Make it with New; Close ends its streams.
type Web struct {
	c       Config
	pages   map[string]*template.Template
	assets  map[string]asset
	names   *names
	slots   *slots // of streams
	making  *slots // of pages and downloads
	handler http.Handler

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// asset is one file of the package, under a name that changes with its content.
type asset struct {
	body []byte
	kind string
}

// New returns the pages over c.
func New(c Config) (*Web, error) {
	if c.Pipelines == nil || c.Repos == nil || c.Logs == nil || c.Hostname == "" || c.Clock == nil || c.Log == nil {
		return nil, errors.New("web: Pipelines, Repos, Logs, Hostname, Clock and Log are required")
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 1024
	}
	if c.PerClient <= 0 {
		c.PerClient = 64
	}
	if c.SendWithin <= 0 {
		c.SendWithin = 10 * time.Second
	}
	if c.MaxPages <= 0 {
		c.MaxPages = 256
	}
	if c.PagesPerClient <= 0 {
		c.PagesPerClient = 16
	}
	w := &Web{
		c: c, assets: map[string]asset{}, pages: map[string]*template.Template{},
		slots: newSlots(c.MaxStreams, c.PerClient), making: newSlots(c.MaxPages, c.PagesPerClient),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.names = newNames(w.ctx, &w.wg, c.Names, c.Clock)
	urls, err := w.loadAssets()
	if err != nil {
		return nil, err
	}
	if err := w.loadTemplates(urls); err != nil {
		return nil, err
	}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400))
	if err != nil {
		return nil, fmt.Errorf("web: make the compressor: %w", err)
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /_sse", w.serveStream)
	m.Handle("GET /_assets/{name}", compress(http.HandlerFunc(w.serveAsset)))
	m.HandleFunc("POST /_theme", w.serveTheme)
	m.Handle("GET /", w.bounded(compress(http.HandlerFunc(w.servePage))))
	w.handler = m
	return w, nil
}

// Close ends the open streams and waits for everything that the package started.
func (w *Web) Close() error {
	w.cancel()
	w.wg.Wait()
	return nil
}

// ServeHTTP implements http.Handler.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.handler.ServeHTTP(rw, r)
}

// bounded lets so many through at a time: pages cost time to make, and who reads slowly holds one for long.
func (w *Web) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		client := w.client(r)
		if !w.making.take(client) {
			rw.Header().Set("Retry-After", "2")
			http.Error(rw, "too many pages are asked for at once; try again in a moment", http.StatusServiceUnavailable)
			return
		}
		defer w.making.give(client)
		next.ServeHTTP(rw, r)
	})
}

// Forget makes the next page ask anew for the handle of did, which may have another by now.
func (w *Web) Forget(did string) { w.names.forget(did) }

// client names who sent r, or is empty where nobody can tell.
func (w *Web) client(r *http.Request) string {
	if w.c.Client == nil {
		return ""
	}
	return w.c.Client(r)
}

func (w *Web) loadAssets() (urls map[string]string, err error) {
	urls = map[string]string{}
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	list, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("web: list the assets: %w", err)
	}
	for _, e := range list {
		b, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("web: read an asset: %w", err)
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), ext) + "-" + hex.EncodeToString(sum[:6]) + ext
		w.assets[name] = asset{body: b, kind: kinds[ext]}
		urls[e.Name()] = "/_assets/" + name
	}
	return urls, nil
}

func (w *Web) loadTemplates(urls map[string]string) error {
	funcs := template.FuncMap{
		"asset": func(name string) (string, error) {
			if u := urls[name]; u != "" {
				return u, nil
			}
			return "", fmt.Errorf("there is no asset %q", name)
		},
	}
	for _, name := range []string{"overview", "pipeline", "workflow", "problem"} {
		t, err := template.New(name).Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return fmt.Errorf("web: parse the templates: %w", err)
		}
		w.pages[name] = t
	}
	return nil
}

func (w *Web) serveAsset(rw http.ResponseWriter, r *http.Request) {
	a, ok := w.assets[r.PathValue("name")]
	if !ok {
		http.Error(rw, "no such file", http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", a.kind)
	rw.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = rw.Write(a.body) // the reader is gone: nobody to tell
}

// themes are the values of the theme cookie, each with the one that the button goes to.
var themes = map[string]string{"auto": "dark", "dark": "light", "light": "auto"}

func theme(r *http.Request) string {
	if c, err := r.Cookie("theme"); err == nil && themes[c.Value] != "" {
		return c.Value
	}
	return "auto"
}

func (w *Web) serveTheme(rw http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(rw, r.Body, 4<<10)
	to := r.PostFormValue("to")
	if themes[to] == "" {
		http.Error(rw, "the theme is auto, light or dark", http.StatusBadRequest)
		return
	}
	http.SetCookie(rw, &http.Cookie{
		Name: "theme", Value: to, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(rw, r, local(r.PostFormValue("back")), http.StatusSeeOther)
}

// local is p if it is a path on this server, and "/" if it could lead elsewhere.
func local(p string) string {
	if len(p) > 2048 || !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\\r\n\t") {
		return "/"
	}
	return p
}
