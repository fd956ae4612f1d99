package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"spindle/identity"
	"spindle/internal/clock"
)

// Paths below the issuer's URL. Discovery's is fixed by OpenID Connect Discovery 1.0, section 4; both
// documents may be cached for at most five minutes, so that a new key is seen in time.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/.well-known/jwks.json"
)

const (
	// MaxTTL is the longest life of an ID token.
	MaxTTL       = 10 * time.Minute
	maxClockBack = 30 * time.Second
)

// Errors of Mint. ErrUnrecordable means that this run gets no token and goes on without; the others are
// mistakes to report.
var (
	ErrUnrecordable = errors.New("oidc: run cannot be put into an ID token")
	ErrAudience     = errors.New("oidc: audience not accepted")
	ErrClock        = errors.New("oidc: clock went back since the last token")
)

// Config says who issues.
type Config struct {
	// IssuerURL is the issuer: an https origin without port, path or trailing slash
	// ("https://spindle.example.com"), since clouds accept nothing else. Required.
	IssuerURL string
	// KeyPath is the PEM file with the EC P-256 ID-token key. It is made, with mode 0600, if it does not
	// exist; a file that others can read is refused. It must not be the identity key's. Required.
	KeyPath string
	// AlsoPublish lists key files whose public halves go into the key set as well: the next key, a day
	// before its use, and the former one, until its tokens have ended.
	AlsoPublish []string
	// IdentityKeyPath is the identity key's file. If set, an ID-token key that is the same key is refused:
	// one key for both would let tokens of one kind be tried as the other.
	IdentityKeyPath string
	// Clock is the present. Nil means the real one.
	Clock clock.Clock
	// TTL is the life of a token. Zero means MaxTTL, and more is refused.
	TTL time.Duration
	// Dev allows an http issuer, with a port, and DIDs of the .test zone.
	Dev bool
}

// Issuer mints ID tokens. Make it with Open; it is safe for concurrent use.
type Issuer struct {
	url, host string
	ttl       time.Duration
	clock     clock.Clock
	dev       bool
	signer    jose.Signer
	discovery []byte
	jwks      []byte

	mu   sync.Mutex
	last time.Time // of the newest token
}

// Open loads the key, or makes it on the first start.
func Open(c Config) (*Issuer, error) {
	host, err := issuerHost(c.IssuerURL, c.Dev)
	if err != nil {
		return nil, err
	}
	if c.TTL == 0 {
		c.TTL = MaxTTL
	}
	if c.TTL < time.Second || c.TTL > MaxTTL {
		return nil, fmt.Errorf("oidc: token life of %s is not within 1 s and %s", c.TTL, MaxTTL)
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	key, err := openKey(c.KeyPath)
	if err != nil {
		return nil, fmt.Errorf("oidc: %w", err)
	}
	if err := notShared(key, c.IdentityKeyPath); err != nil {
		return nil, err
	}
	own, err := webKey(key)
	if err != nil {
		return nil, err
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{own.Public()}}
	for _, path := range c.AlsoPublish {
		k, err := identity.LoadKeyFile(path)
		if err != nil {
			return nil, fmt.Errorf("oidc: %w", err)
		}
		w, err := webKey(k)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, w.Public())
	}
	i := &Issuer{url: c.IssuerURL, host: host, ttl: c.TTL, clock: c.Clock, dev: c.Dev}
	i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: own}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("oidc: signer: %w", err)
	}
	if i.jwks, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("oidc: key set: %w", err)
	}
	if i.discovery, err = json.Marshal(discoveryFor(c.IssuerURL)); err != nil {
		return nil, fmt.Errorf("oidc: discovery: %w", err)
	}
	return i, nil
}

func issuerHost(raw string, dev bool) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "", u.User != nil, u.Path != "", u.RawQuery != "", u.ForceQuery, u.Fragment != "",
		raw != strings.ToLower(raw), u.String() != raw:
		return "", fmt.Errorf("oidc: issuer %q must be a plain origin in lower case, such as https://spindle.example.com", raw)
	case dev && u.Scheme == "http", u.Scheme == "https" && (dev || u.Port() == ""):
		return u.Hostname(), nil
	default:
		return "", fmt.Errorf("oidc: issuer %q must be https without a port", raw)
	}
}

func openKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := identity.LoadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	// Another process may make it at the same moment; whoever was first, the file is complete.
	if err := identity.GenerateKeyFile(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return identity.LoadKeyFile(path)
}

func notShared(key *ecdsa.PrivateKey, identityPath string) error {
	if identityPath == "" {
		return nil
	}
	id, err := identity.LoadKeyFile(identityPath)
	if err != nil {
		return fmt.Errorf("oidc: compare with identity key: %w", err)
	}
	if key.Equal(id) {
		return fmt.Errorf("%w: the ID-token key is the identity key; give it a file of its own", identity.ErrKeyFile)
	}
	return nil
}

// webKey names a key by its thumbprint (RFC 7638), so that the name is the key's own.
func webKey(key *ecdsa.PrivateKey) (jose.JSONWebKey, error) {
	k := jose.JSONWebKey{Key: key, Algorithm: string(jose.ES256), Use: "sig"}
	sum, err := k.Thumbprint(crypto.SHA256)
	if err != nil {
		return k, fmt.Errorf("oidc: key thumbprint: %w", err)
	}
	k.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return k, nil
}

type discovery struct {
	Issuer     string   `json:"issuer"`
	JWKS       string   `json:"jwks_uri"`
	Responses  []string `json:"response_types_supported"`
	Subjects   []string `json:"subject_types_supported"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
	Scopes     []string `json:"scopes_supported"`
	Claims     []string `json:"claims_supported"`
}

func discoveryFor(issuer string) discovery {
	return discovery{
		Issuer:    issuer,
		JWKS:      issuer + JWKSPath,
		Responses: []string{"id_token"},
		Subjects:  []string{"public"},
		// The specification wants RS256 listed by every issuer (section 3). We sign with ES256 only, and
		// the key set has no RSA key.
		Algorithms: []string{"RS256", "ES256"},
		Scopes:     []string{"openid"},
		Claims: []string{"iss", "sub", "aud", "exp", "iat", "nbf", "jti", "repository", "repository_owner", "ref", "ref_type", "sha",
			"actor", "actor_source", "workflow", "pipeline", "event_name", "trust", "runner_environment"},
	}
}

// Discovery is the discovery document as JSON, for DiscoveryPath. The caller must not change it.
func (i *Issuer) Discovery() []byte { return i.discovery }

// JWKS is the key set as JSON, for JWKSPath. The caller must not change it.
func (i *Issuer) JWKS() []byte { return i.jwks }

// Mint makes the ID token of one run for one audience. The token is a secret of that run. Errors:
// ErrUnrecordable, ErrAudience, ErrClock.
func (i *Issuer) Mint(ctx context.Context, c Claims) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := i.checkAudience(c.Audience); err != nil {
		return "", err
	}
	body, err := c.payload(i.dev)
	if err != nil {
		return "", err
	}
	now, err := i.tick()
	if err != nil {
		return "", err
	}
	std := jwt.Claims{
		Issuer:    i.url,
		Subject:   c.subject(),
		Audience:  jwt.Audience{c.Audience},
		ID:        rand.Text(),
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now),
		Expiry:    jwt.NewNumericDate(now.Add(i.ttl)),
	}
	t, err := jwt.Signed(i.signer).Claims(std).Claims(body).Serialize()
	if err != nil {
		return "", fmt.Errorf("oidc: sign: %w", err)
	}
	return t, nil
}

// tick is the time for a token. A clock that has gone back would make tokens that live longer than they say
// to everybody whose clock is right.
func (i *Issuer) tick() (time.Time, error) {
	// Without the monotonic reading: it is the wall clock that goes into tokens.
	now := i.clock.Now().Round(0)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last.Sub(now) > maxClockBack {
		return time.Time{}, fmt.Errorf("%w: by %s", ErrClock, i.last.Sub(now))
	}
	if now.After(i.last) {
		i.last = now
	}
	return now, nil
}
