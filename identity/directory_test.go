package identity

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/internal/netguard"
)

func TestDirectoryLookup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.directory()
	for _, did := range []string{plcName(), "did:web:spindle.test"} {
		a := w.account(t, did, false, nil)
		id, err := d.Lookup(t.Context(), did)
		require.NoError(t, err)
		require.Equal(t, did, id.DID)
		require.Equal(t, "wren.test", id.Handle)
		k, err := id.PublicKey()
		require.NoError(t, err)
		own, err := a.key.PublicKey()
		require.NoError(t, err)
		require.True(t, own.Equal(k))
		pds, err := id.PDS()
		require.NoError(t, err)
		require.Equal(t, "http://pds.test", pds)
		knot, err := id.KnotEndpoint()
		require.NoError(t, err)
		require.Equal(t, "http://knot.test", knot)
		_, err = id.Service("nothing")
		require.ErrorIs(t, err, ErrBadDocument)
	}
}

func TestKnotEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.directory()
	svc := func(id, typ, url string) map[string]any {
		return map[string]any{"id": id, "type": typ, "serviceEndpoint": url}
	}
	for name, c := range map[string]struct {
		services []any
		want     string
	}{
		"native":       {[]any{svc("#tangled_knot", "TangledKnot", "https://k.example.com"), svc("#knot", "x", "https://o.example.com")}, "https://k.example.com"},
		"long id":      {[]any{svc("did:web:x.test#tangled_knot", "TangledKnot", "https://k.example.com")}, "https://k.example.com"},
		"older":        {[]any{svc("#knot", "Whatever", "https://o.example.com")}, "https://o.example.com"},
		"other type":   {[]any{svc("#tangled_knot", "Else", "https://k.example.com")}, ""},
		"none":         {nil, ""},
		"no origin":    {[]any{svc("#tangled_knot", "TangledKnot", "https://k.example.com/x")}, ""},
		"not http":     {[]any{svc("#tangled_knot", "TangledKnot", "ssh://k.example.com")}, ""},
		"first counts": {[]any{svc("#knot", "a", "https://a.example.com"), svc("#knot", "b", "https://b.example.com")}, "https://a.example.com"},
	} {
		did := plcName()
		doc := docFor(t, did, newKey(t, false))
		doc["service"] = c.services
		w.put(did, doc)
		id, err := d.Lookup(t.Context(), did)
		require.NoError(t, err, name)
		got, err := id.KnotEndpoint()
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.want == "", err != nil, name)
	}
}

func TestT09Documents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.directory()
	odd := func(f http.HandlerFunc) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.other["odd.test"] = f
	}
	text := func(s string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(s)) }
	}
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://spindle.test/.well-known/did.json")
			rw.WriteHeader(code)
		}
	}
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want error
	}{
		"another id":     {text(`{"id":"did:web:spindle.test"}`), ErrBadDocument},
		"id upper case":  {text(`{"id":"did:web:ODD.test"}`), ErrBadDocument},
		"no id":          {text(`{}`), ErrBadDocument},
		"null":           {text(`null`), ErrBadDocument},
		"not JSON":       {text(`<html>`), ErrBadDocument},
		"wrong types":    {text(`{"id":"did:web:odd.test","service":"x"}`), ErrBadDocument},
		"empty":          {text(``), ErrBadDocument},
		"over 64 KiB":    {text(`{"id":"did:web:odd.test","x":"` + strings.Repeat("a", maxDocument) + `"}`), ErrBadDocument},
		"not found":      {status(404), ErrNotFound},
		"gone":           {status(410), ErrNotFound},
		"redirect":       {status(302), ErrBadDocument},
		"server trouble": {status(503), ErrUnreachable},
		"cut off": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100")
			_, _ = rw.Write([]byte(`{"id":`))
		}, ErrUnreachable},
	} {
		odd(c.h)
		fresh := w.directory()
		_, err := fresh.Lookup(t.Context(), "did:web:odd.test")
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.want == ErrUnreachable, Temporary(err), name)
	}
	require.Zero(t, w.requests("spindle.test/.well-known/did.json"), "redirects are not followed")
	_, err := d.Lookup(t.Context(), "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = d.Lookup(t.Context(), "did:web:localhost")
	require.ErrorIs(t, err, ErrBadDID)

	// Without keys, and with a key that is somebody else's: the document resolves, the key does not.
	for _, doc := range []string{`{"id":"did:web:odd.test"}`,
		`{"id":"did:web:odd.test","verificationMethod":[{"id":"#atproto","type":"Multikey","controller":"did:web:evil.test","publicKeyMultibase":"zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo"}]}`,
		`{"id":"did:web:odd.test","verificationMethod":[{"id":"#atproto","type":"Multikey","controller":"did:web:odd.test","publicKeyMultibase":"z6Mk"}]}`,
		`{"id":"did:web:odd.test","verificationMethod":[{"id":"#atproto","type":"Else","controller":"did:web:odd.test","publicKeyMultibase":""}]}`} {
		odd(text(doc))
		id, err := w.directory().Lookup(t.Context(), "did:web:odd.test")
		require.NoError(t, err)
		_, err = id.PublicKey()
		require.ErrorIs(t, err, ErrBadDocument)
		_, err = id.PDS()
		require.ErrorIs(t, err, ErrBadDocument)
	}
}

// Outside Dev the guard refuses what a did:web name resolves to inside.
func TestT24DirectoryIsGuarded(t *testing.T) {
	t.Parallel()
	g := netguard.New(netguard.Config{})
	d := NewDirectory(DirectoryConfig{PLCURL: "https://127.0.0.1", Client: g.HTTPClient(netguard.ClientOptions{})})
	_, err := d.Lookup(t.Context(), plcName())
	require.ErrorIs(t, err, ErrBadDocument)
	require.ErrorIs(t, err, netguard.ErrDenied)
	_, err = d.Lookup(t.Context(), "did:web:spindle.test")
	require.ErrorIs(t, err, ErrBadDID)
}

func TestT04CacheAndLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clk := clock.NewManual(time.Now())
	d := w.directory(func(c *DirectoryConfig) { c.Clock = clk; c.ErrTTL = time.Nanosecond })
	a := w.account(t, plcName(), false, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := d.Lookup(t.Context(), a.did)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, 1, w.requests("plc.test/"+a.did), "one request for all at once, and then the cache")

	require.True(t, d.Purge(t.Context(), a.did))
	require.False(t, d.Purge(t.Context(), a.did), "once a minute")
	clk.Advance(61 * time.Second)
	require.True(t, d.Purge(t.Context(), a.did))
	require.False(t, d.Purge(t.Context(), "did:web:localhost"))

	missing := plcName()
	busy := 0
	for range 30 {
		_, err := d.Lookup(t.Context(), missing)
		require.Error(t, err)
		if Temporary(err) {
			busy++
		}
	}
	require.Equal(t, 6, w.requests("plc.test/"+missing), "the bucket of one DID")
	require.Equal(t, 24, busy)
	clk.Advance(5 * time.Second)
	_, err := d.Lookup(t.Context(), missing)
	require.ErrorIs(t, err, ErrNotFound)
}

// A caller that hangs up must not leave an error in the cache for the others.
func TestHangUpIsNotRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.directory()
	a := w.account(t, plcName(), false, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Lookup(ctx, a.did)
	if err != nil {
		require.True(t, Temporary(err))
	}
	_, err = d.Lookup(t.Context(), a.did)
	require.NoError(t, err)
}

func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBuckets(time.Minute, 1, 100)
	now := time.Now()
	for i := range 10_000 {
		require.True(t, b.allow(fmt.Sprint(i), now))
		require.LessOrEqual(t, len(b.set), 100)
	}
}

func TestHandleIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), false, nil)
	w.other["wren.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(a.did)) })
	clk := clock.NewManual(time.Now())
	d := w.directory(func(c *DirectoryConfig) { c.Clock = clk })
	require.Equal(t, "wren.test", d.Handle(t.Context(), a.did))
	require.Equal(t, "wren.test", d.Handle(t.Context(), a.did))
	require.Equal(t, 1, w.requests("wren.test/.well-known/atproto-did"))
	liar := w.account(t, plcName(), false, nil)
	require.Empty(t, d.Handle(t.Context(), liar.did), "the domain names somebody else")
	require.Empty(t, d.Handle(t.Context(), "did:web:localhost"))

	w.mu.Lock()
	w.other["wren.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(liar.did)) })
	w.mu.Unlock()
	clk.Advance(5 * time.Minute)
	require.Empty(t, d.Handle(t.Context(), a.did), "the domain changed hands")
}
