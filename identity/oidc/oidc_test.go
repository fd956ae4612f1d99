package oidc

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/identity"
	"spindle/internal/clock"
	"spindle/internal/netguard"
	"spindle/pipeline"
)

func TestMain(m *testing.M) {
	// The logger of the IPFS libraries that indigo uses starts this one at import and has no way to stop it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

func facts() Claims {
	return Claims{
		Audience: "sts.example.com", Repo: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Owner: "did:web:wren.example.com",
		Ref: "refs/heads/main", SHA: strings.Repeat("a1", 20), Event: pipeline.Push,
		Actor: "did:web:wren.example.com", ActorSource: pipeline.FromKnot, Workflow: "build.yml", Pipeline: "3mabcdefgh22a",
		Trust: pipeline.TrustProtected, Runner: "self-hosted",
	}
}

// site serves an issuer's two documents over real HTTP.
func site(t *testing.T, mod func(*Config)) (*Issuer, *httptest.Server) {
	t.Helper()
	var i *Issuer
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case DiscoveryPath:
			_, _ = w.Write(i.Discovery())
		case JWKSPath:
			_, _ = w.Write(i.JWKS())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	c := Config{IssuerURL: s.URL, KeyPath: filepath.Join(t.TempDir(), "oidc.pem"), Dev: true}
	if mod != nil {
		mod(&c)
	}
	var err error
	i, err = Open(c)
	require.NoError(t, err)
	return i, s
}

func relyingParty(t *testing.T, s *httptest.Server, aud string) *goidc.IDTokenVerifier {
	t.Helper()
	ctx := goidc.ClientContext(t.Context(), s.Client())
	p, err := goidc.NewProvider(ctx, s.URL)
	require.NoError(t, err)
	return p.Verifier(&goidc.Config{ClientID: aud})
}

// The outside library finds the keys by discovery and accepts the token.
func TestTokenVerifiedByOutsideLibrary(t *testing.T) {
	t.Parallel()
	i, s := site(t, nil)
	raw, err := i.Mint(t.Context(), facts())
	require.NoError(t, err)
	tok, err := relyingParty(t, s, "sts.example.com").Verify(t.Context(), raw)
	require.NoError(t, err)
	require.Equal(t, "repo:did:plc:ewvi7nxzyoun6zhxrhs64oiz:ref:refs/heads/main", tok.Subject)
	require.Equal(t, []string{"sts.example.com"}, tok.Audience)
	require.LessOrEqual(t, time.Until(tok.Expiry), MaxTTL)
	var got map[string]any
	require.NoError(t, tok.Claims(&got))
	for k, want := range map[string]any{
		"repository": "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "repository_owner": "did:web:wren.example.com", "ref": "refs/heads/main",
		"ref_type": "branch", "sha": strings.Repeat("a1", 20), "actor": "did:web:wren.example.com", "actor_source": "knot",
		"workflow": "build.yml", "pipeline": "3mabcdefgh22a", "event_name": "push", "trust": "protected", "runner_environment": "self-hosted",
	} {
		require.Equal(t, want, got[k], k)
	}
	for _, k := range []string{"jti", "iat", "nbf", "exp"} {
		require.NotEmpty(t, got[k], k)
	}
	again, err := i.Mint(t.Context(), facts())
	require.NoError(t, err)
	require.NotEqual(t, raw, again, "each token has its own jti")

	_, err = relyingParty(t, s, "other.example.com").Verify(t.Context(), raw)
	require.Error(t, err)
	stranger, _ := site(t, nil)
	forged, err := stranger.Mint(t.Context(), facts())
	require.NoError(t, err)
	_, err = relyingParty(t, s, "sts.example.com").Verify(t.Context(), forged)
	require.Error(t, err)
}

func TestOpenKeepsItsKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "oidc.pem")
	open := func(also ...string) *Issuer {
		i, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: path, AlsoPublish: also})
		require.NoError(t, err)
		return i
	}
	first := open()
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
	require.Equal(t, string(first.JWKS()), string(open().JWKS()), "the same key after a restart")
	require.NotContains(t, string(first.JWKS()), `"d"`, "no private part")

	next := filepath.Join(t.TempDir(), "next.pem")
	require.NoError(t, identity.GenerateKeyFile(next))
	var set struct {
		Keys []struct{ Kid, Kty, Crv, Alg, Use string }
	}
	require.NoError(t, json.Unmarshal(open(next).JWKS(), &set))
	require.Len(t, set.Keys, 2)
	require.NotEqual(t, set.Keys[0].Kid, set.Keys[1].Kid)
	require.Equal(t, "P-256", set.Keys[0].Crv)

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: path})
	require.ErrorIs(t, err, identity.ErrKeyFile)
	require.ErrorContains(t, err, "chmod 600")
	_, err = Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: filepath.Join(t.TempDir(), "no", "oidc.pem")})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestT19SharedKeyIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "identity.pem")
	require.NoError(t, identity.GenerateKeyFile(path))
	_, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: path, IdentityKeyPath: path})
	require.ErrorIs(t, err, identity.ErrKeyFile)
	_, err = Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: filepath.Join(t.TempDir(), "oidc.pem"), IdentityKeyPath: path})
	require.NoError(t, err)
}

// A verifier that keeps the key set it fetched before the rotation goes on accepting, before and after.
func TestB112RotationWithCachedKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now, next := filepath.Join(dir, "now.pem"), filepath.Join(dir, "next.pem")
	require.NoError(t, identity.GenerateKeyFile(now))
	require.NoError(t, identity.GenerateKeyFile(next))
	open := func(key, also string) *Issuer {
		i, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: key, AlsoPublish: []string{also}})
		require.NoError(t, err)
		return i
	}
	before, after := open(now, next), open(next, now)
	for _, cached := range []*Issuer{before, after} {
		var set jose.JSONWebKeySet
		require.NoError(t, json.Unmarshal(cached.JWKS(), &set))
		keys := &goidc.StaticKeySet{}
		for _, k := range set.Keys {
			keys.PublicKeys = append(keys.PublicKeys, k.Key)
		}
		v := goidc.NewVerifier("https://spindle.example.com", keys, &goidc.Config{ClientID: "sts.example.com", SupportedSigningAlgs: []string{"ES256"}})
		for _, signing := range []*Issuer{before, after, open(now, next)} {
			raw, err := signing.Mint(t.Context(), facts())
			require.NoError(t, err)
			_, err = v.Verify(t.Context(), raw)
			require.NoError(t, err)
		}
	}
}

func TestOpenRefusesIssuers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "oidc.pem")
	for _, u := range []string{"", "spindle.example.com", "http://spindle.example.com", "https://spindle.example.com/", "https://spindle.example.com:8443",
		"https://spindle.example.com/x", "https://spindle.example.com?x", "https://u@spindle.example.com", "https://SPINDLE.example.com", "did:web:spindle.example.com"} {
		_, err := Open(Config{IssuerURL: u, KeyPath: path})
		require.Error(t, err, u)
	}
	for _, ttl := range []time.Duration{-1, time.Millisecond, MaxTTL + 1} {
		_, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: path, TTL: ttl})
		require.Error(t, err, ttl)
	}
	_, err := os.Stat(path)
	require.ErrorIs(t, err, fs.ErrNotExist, "a refused configuration leaves no key behind")
}

func issuer(t *testing.T) *Issuer {
	t.Helper()
	i, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: filepath.Join(t.TempDir(), "k.pem")})
	require.NoError(t, err)
	return i
}

func TestT18Audiences(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	mint := func(aud string) error {
		c := facts()
		c.Audience = aud
		_, err := i.Mint(t.Context(), c)
		return err
	}
	for _, good := range []string{"sts.amazonaws.com", "https://registry.example.com", "//iam.googleapis.com/projects/1/locations/global", "api://AzureADTokenExchange", "x",
		"spindle.example.com.evil.org", "notspindle.example.com", strings.Repeat("a", 255)} {
		require.NoError(t, mint(good), good)
	}
	for _, bad := range []string{"", "did:web:spindle.example.com", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "DID:web:x.example.com", "did:", "x#tangled_spindle", "#", "a b", "a\nb", "a\x00", "é",
		"spindle.example.com", "SPINDLE.example.com", "spindle.example.com.", "spindle.example.com:443", "spindle.example.com/xrpc", "https://spindle.example.com",
		"https://spindle.example.com/", "https://spindle.example.com:443/x", "http://spindle.example.com", "//spindle.example.com", "https://u@spindle.example.com",
		"wss://Spindle.Example.Com./x", strings.Repeat("a", 256)} {
		require.ErrorIs(t, mint(bad), ErrAudience, "%q", bad)
	}
}

func TestT18Subjects(t *testing.T) {
	t.Parallel()
	const repo = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	for name, c := range map[string]struct {
		mod        func(*Claims)
		sub, typ   string
		noRefClaim bool
	}{
		"branch":        {func(*Claims) {}, "repo:" + repo + ":ref:refs/heads/main", "branch", false},
		"tag":           {func(c *Claims) { c.Ref = "refs/tags/v1.2/rc" }, "repo:" + repo + ":ref:refs/tags/v1.2/rc", "tag", false},
		"pull request":  {func(c *Claims) { c.Event = pipeline.PullRequest }, "repo:" + repo + ":pull_request", "", true},
		"bare commit":   {func(c *Claims) { c.Ref = ""; c.Event = pipeline.Manual }, "repo:" + repo + ":commit:" + strings.Repeat("a1", 20), "", true},
		"schedule":      {func(c *Claims) { c.Event, c.Actor, c.ActorSource = pipeline.Schedule, "", "" }, "repo:" + repo + ":ref:refs/heads/main", "branch", false},
		"did:web repo":  {func(c *Claims) { c.Repo = "did:web:r.example.com" }, "repo:did:web:r.example.com:ref:refs/heads/main", "branch", false},
		"long commit":   {func(c *Claims) { c.SHA = strings.Repeat("ab", 32) }, "repo:" + repo + ":ref:refs/heads/main", "branch", false},
		"odd branch":    {func(c *Claims) { c.Ref = "refs/heads/pull_request" }, "repo:" + repo + ":ref:refs/heads/pull_request", "branch", false},
		"branch of tag": {func(c *Claims) { c.Ref = "refs/heads/refs/tags/v1" }, "repo:" + repo + ":ref:refs/heads/refs/tags/v1", "branch", false},
	} {
		f := facts()
		c.mod(&f)
		p, err := f.payload(false)
		require.NoError(t, err, name)
		require.Equal(t, c.sub, f.subject(), name)
		require.Equal(t, c.typ, p.RefType, name)
		require.Equal(t, c.noRefClaim, p.Ref == "", name)
	}
}

func TestT18Unrecordable(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	for name, mod := range map[string]func(*Claims){
		"fork":              func(c *Claims) { c.Trust = pipeline.TrustFork },
		"approved fork":     func(c *Claims) { c.Trust = pipeline.TrustApproved },
		"no such trust":     func(c *Claims) { c.Trust = 99 },
		"no commit":         func(c *Claims) { c.SHA = "" },
		"short commit":      func(c *Claims) { c.SHA = "a1b2c3d" },
		"commit upper case": func(c *Claims) { c.SHA = strings.Repeat("A1", 20) },
		"no repo":           func(c *Claims) { c.Repo = "" },
		"repo by name":      func(c *Claims) { c.Repo = "wren/repo" },
		"repo with port":    func(c *Claims) { c.Repo = "did:web:x.example.com%3A80" },
		"repo with path":    func(c *Claims) { c.Repo = "did:web:x.example.com:ref:refs/heads/main" },
		"no owner":          func(c *Claims) { c.Owner = "" },
		"actor by handle":   func(c *Claims) { c.Actor = "wren.example.com" },
		"actor unsourced":   func(c *Claims) { c.ActorSource = "" },
		"odd source":        func(c *Claims) { c.ActorSource = "job" },
		"odd event":         func(c *Claims) { c.Event = "release" },
		"no workflow":       func(c *Claims) { c.Workflow = "" },
		"workflow path":     func(c *Claims) { c.Workflow = "../x.yml" },
		"no pipeline":       func(c *Claims) { c.Pipeline = "" },
		"runner text":       func(c *Claims) { c.Runner = "my runner" },
	} {
		c := facts()
		mod(&c)
		_, err := i.Mint(t.Context(), c)
		require.ErrorIs(t, err, ErrUnrecordable, name)
	}
	for _, ref := range []string{"main", "HEAD", "refs/heads/", "refs/heads", "refs/pull/1/head", "refs/heads/a:b", "refs/heads/a b", "refs/heads/a..b", "refs/heads/*",
		"refs/heads/a?", "refs/heads/[a]", "refs/heads/a~1", "refs/heads/a^", `refs/heads/a\b`, "refs/heads/.a", "refs/heads/a/.b", "refs/heads/a.lock", "refs/heads/a.lock/b",
		"refs/heads/a.", "refs/heads//a", "refs/heads/a/", "refs/heads/a@{1}", "refs/heads/mаin", "refs/heads/a\n", "refs/heads/a\x7f", "REFS/heads/main",
		"refs/heads/" + strings.Repeat("a", 250)} {
		c := facts()
		c.Ref = ref
		_, err := i.Mint(t.Context(), c)
		require.ErrorIs(t, err, ErrUnrecordable, "%q", ref)
	}
}

// decode takes a subject apart again; together with subject it shows that no two runs share one.
func decode(sub string) (repo, kind, rest string) {
	sub = strings.TrimPrefix(sub, "repo:")
	parts := strings.SplitN(sub, ":", 5) // did, method, name, kind, rest
	if len(parts) == 5 {
		rest = parts[4]
	}
	return strings.Join(parts[:3], ":"), parts[3], rest
}

func FuzzT18Subject(f *testing.F) {
	f.Add("did:plc:ewvi7nxzyoun6zhxrhs64oiz", "refs/heads/main", false)
	f.Add("did:web:x.example.com", "refs/tags/pull_request", true)
	f.Fuzz(func(t *testing.T, repo, ref string, pr bool) {
		c := facts()
		c.Repo, c.Ref = repo, ref
		if pr {
			c.Event = pipeline.PullRequest
		}
		if _, err := c.payload(true); err != nil {
			return
		}
		gotRepo, kind, rest := decode(c.subject())
		wantKind, wantRest := "ref", ref
		switch {
		case pr:
			wantKind, wantRest = "pull_request", ""
		case ref == "":
			wantKind, wantRest = "commit", c.SHA
		}
		if gotRepo != repo || kind != wantKind || rest != wantRest {
			t.Fatalf("%q decodes to %q %q %q", c.subject(), gotRepo, kind, rest)
		}
	})
}

func TestClockThatGoesBack(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	clk := clock.NewManual(at)
	i, err := Open(Config{IssuerURL: "https://spindle.example.com", KeyPath: filepath.Join(t.TempDir(), "k.pem"), Clock: clk})
	require.NoError(t, err)
	_, err = i.Mint(t.Context(), facts())
	require.NoError(t, err)
	clk.Advance(-20 * time.Second)
	_, err = i.Mint(t.Context(), facts())
	require.NoError(t, err, "a small step is allowed")
	clk.Advance(-20 * time.Second)
	_, err = i.Mint(t.Context(), facts())
	require.ErrorIs(t, err, ErrClock)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = i.Mint(ctx, facts())
	require.ErrorIs(t, err, context.Canceled)
}

type tokens struct{}

func (tokens) UseToken(context.Context, string, string, time.Time) (bool, error) { return true, nil }

// TestT19CrossMatrix shows each kind of token to the verifier of the other kind, with keys apart as they
// should be, and with one key for both as a mistaken operator might have it.
func TestT19CrossMatrix(t *testing.T) {
	t.Parallel()
	const nsid = "org.tangled.event.notifyEvent"
	for _, shared := range []bool{false, true} {
		dir := t.TempDir()
		idKey, oidcKey := filepath.Join(dir, "identity.pem"), filepath.Join(dir, "oidc.pem")
		require.NoError(t, identity.GenerateKeyFile(idKey))
		if shared {
			oidcKey = idKey
		}
		i, s := site(t, func(c *Config) { c.KeyPath = oidcKey })
		self, err := identity.OpenSelf(identity.SelfConfig{Hostname: "spindle.test", KeyPath: idKey})
		require.NoError(t, err)
		docs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(self.Document()) }))
		t.Cleanup(docs.Close)
		client := netguard.New(netguard.Config{Dev: true, Hosts: map[string]string{"spindle.test": docs.Listener.Addr().String()}}).HTTPClient(netguard.ClientOptions{})
		t.Cleanup(client.CloseIdleConnections)
		v := identity.NewVerifier(identity.VerifierConfig{
			Audience:  self.DID(),
			Directory: identity.NewDirectory(identity.DirectoryConfig{Client: client, Dev: true}),
			Tokens:    tokens{},
		})

		service, err := self.Mint(t.Context(), self.Audience(), nsid, time.Minute)
		require.NoError(t, err)
		idToken, err := i.Mint(t.Context(), facts())
		require.NoError(t, err)

		_, err = v.Verify(t.Context(), service, nsid)
		require.NoError(t, err, "shared=%v", shared)
		_, err = v.Verify(t.Context(), idToken, nsid)
		require.ErrorIs(t, err, identity.ErrTokenKey, "shared=%v: ID token as service token", shared)

		for _, aud := range []string{"sts.example.com", self.DID(), self.Audience()} {
			rp := relyingParty(t, s, aud)
			_, err = rp.Verify(t.Context(), service)
			require.Error(t, err, "shared=%v: service token as ID token for %s", shared, aud)
		}
		_, err = relyingParty(t, s, "sts.example.com").Verify(t.Context(), idToken)
		require.NoError(t, err)
	}
}
