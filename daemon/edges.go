package daemon

import (
	"context"
	"net/http"
	"strings"
	"time"

	"spindle/feed"
	"spindle/identity"
	"spindle/identity/oidc"
	"spindle/internal/tid"
	"spindle/logs"
	"spindle/pipeline"
	"spindle/secrets"
	"spindle/store"
	"spindle/web"
	"spindle/workflow"
	"spindle/xrpc"
)

// edges builds what people and machines talk to.
func (d *Daemon) edges(out outside, v *secrets.Vault, issuer *oidc.Issuer, l *logs.Logs) error {
	schema, err := workflow.Schema(workflow.DefaultLimits())
	if err != nil {
		return err
	}
	in := intake{in: d.ingest, ids: tid.New(d.o.Clock)}
	// Everybody who follows something waits for the same changes: they are read once for all.
	reads := watched{Store: d.store, changes: feed.New(d.store, 0)}
	d.calls, err = xrpc.New(xrpc.Config{
		Pipelines: reads, Repos: d.store, Policy: d.store, Verbs: d.store, Retries: in,
		Definitions: definitions{out.knots, d.o.Clock}, Secrets: vault{v}, Logs: output{logs: l, store: d.store}, Ingest: in,
		Tokens: verifier{identity.NewVerifier(identity.VerifierConfig{
			Audience: d.self.DID(), Directory: out.directory, Tokens: d.store, Clock: d.o.Clock,
		})},
		Knots: hosts{out.knots}, Owner: d.o.Owner, Documents: d.documents(issuer, schema),
		Ready: d.ready, Draining: d.draining.Load, Origins: d.o.Origins, Proxies: d.o.Proxies,
		Clock: d.o.Clock, Log: d.o.Log, Metrics: d.metrics.Registerer(),
	})
	if err != nil {
		return err
	}
	d.pages, err = web.New(web.Config{
		Pipelines: reads, Repos: d.store, Logs: l, Names: out.directory, Health: d.health,
		Hostname: d.o.Hostname, Version: d.o.Version, Client: d.calls.Address, Clock: d.o.Clock, Log: d.o.Log,
	})
	if err != nil {
		return err
	}
	calls, pages := d.calls.Handler(), d.pages
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_status" {
			d.serveStatus(w, r)
			return
		}
		if machine(r.URL.Path) {
			calls.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
	return nil
}

// watched is the store, with its changes read through the feed.
type watched struct {
	*store.Store
	changes *feed.Feed
}

// Changes returns at most limit changes after the given number.
func (w watched) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	return w.changes.Changes(ctx, after, limit)
}

// machine tells whether a path belongs to the calls and documents; the rest are pages.
func machine(path string) bool {
	for _, p := range []string{"/xrpc/", "/logs/", "/.well-known/"} {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return path == "/events" || path == "/_health" || path == "/_ready" || path == workflow.SchemaPath
}

func (d *Daemon) documents(issuer *oidc.Issuer, schema []byte) []xrpc.Document {
	const age = 5 * time.Minute
	return []xrpc.Document{
		{Path: "/.well-known/did.json", MaxAge: age, Body: d.self.Document},
		{Path: "/.well-known/openid-configuration", MaxAge: age, Body: issuer.Discovery},
		{Path: oidc.JWKSPath, MaxAge: age, Body: issuer.JWKS},
		{Path: workflow.SchemaPath, ContentType: "application/schema+json", MaxAge: age, Body: func() []byte { return schema }},
	}
}

// ready says why the server cannot do its work, or "".
func (d *Daemon) ready(ctx context.Context) string {
	if d.draining.Load() {
		return "stopping"
	}
	if err := d.store.Ping(ctx); err != nil {
		return "the database cannot be written"
	}
	return ""
}
