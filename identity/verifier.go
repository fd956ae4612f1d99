package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	indigo "github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"

	"spindle/internal/clock"
)

const (
	maxToken = 4 << 10
	maxJTI   = 128
	leeway   = 5 * time.Second
)

// TokenStore remembers which tokens were used.
type TokenStore interface {
	// UseToken records that the issuer's token jti was used and may be forgotten after exp. It says
	// whether this was the first use; of many calls at once exactly one may be told so.
	UseToken(ctx context.Context, iss, jti string, exp time.Time) (fresh bool, err error)
}

// VerifierConfig says which tokens are for us. All fields but Clock are required.
type VerifierConfig struct {
	// Audience is our DID. Tokens for the DID itself and for DID#tangled_spindle are accepted.
	Audience string
	// Directory resolves issuers.
	Directory *Directory
	// Tokens is asked once for each token that is good in every other way.
	Tokens TokenStore
	// Clock is the present for exp, iat and nbf. Nil means the real one; indigo's own check, which
	// comes on top, always uses the machine's.
	Clock clock.Clock
}

// Verifier checks the service tokens that callers bring. It is safe for concurrent use.
type Verifier struct {
	dir    *Directory
	tokens TokenStore
	clock  clock.Clock
	auds   [2]string
}

// NewVerifier returns a verifier for c.
func NewVerifier(c VerifierConfig) *Verifier {
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	return &Verifier{
		dir: c.Directory, tokens: c.Tokens, clock: c.Clock,
		auds: [2]string{c.Audience, c.Audience + "#" + SpindleService},
	}
}

// Caller is who brought a token.
type Caller struct {
	// DID is the issuer, whose #atproto key signed.
	DID string
	// Audience is the form of our name that the token used.
	Audience string
	// ID is the token's jti, unique for the issuer.
	ID string
	// Expires is when the token ends.
	Expires time.Time
}

// claims are the claims of a service token (https://atproto.com/specs/xrpc).
type claims struct {
	jwt.RegisteredClaims
	Method string `json:"lxm,omitempty"`
}

// Verify checks a bearer token (without the word "Bearer") for one call of the method lxm, and uses it up:
// the same token is refused from then on. The errors are the Token errors, ErrSignature, those of
// Directory.Lookup, and temporary ones. The text of the Token errors may go to the caller; of the others
// only Reason may, since they tell what our network answered.
func (v *Verifier) Verify(ctx context.Context, bearer, lxm string) (Caller, error) {
	method, err := syntax.ParseNSID(lxm)
	if err != nil {
		return Caller{}, fmt.Errorf("verify service token: method to check: %w", err)
	}
	c, aud, err := v.read(bearer, lxm)
	if err != nil {
		return Caller{}, err
	}
	if err := v.checkSignature(ctx, bearer, aud, method, c.Issuer); err != nil {
		return Caller{}, err
	}
	exp := c.ExpiresAt.Time
	// The token is good until exp and the leeway have passed, so it must be remembered that long.
	fresh, err := v.tokens.UseToken(ctx, c.Issuer, c.ID, exp.Add(leeway))
	if err != nil {
		return Caller{}, fmt.Errorf("%w: record use of token: %w", ErrBusy, err)
	}
	if !fresh {
		return Caller{}, ErrTokenReplayed
	}
	return Caller{DID: c.Issuer, Audience: aud, ID: c.ID, Expires: exp}, nil
}

// Issuer is the DID that the token says signed it, after all checks that ask nobody: the token may still be a
// forgery. The errors are those of Verify.
func (v *Verifier) Issuer(bearer, lxm string) (string, error) {
	c, _, err := v.read(bearer, lxm)
	if err != nil {
		return "", err
	}
	return c.Issuer, nil
}

// read decodes the token and applies every rule that needs no key, so that nothing is resolved for a
// token that could not be accepted anyway.
func (v *Verifier) read(bearer, lxm string) (*claims, string, error) {
	if bearer == "" || len(bearer) > maxToken {
		return nil, "", fmt.Errorf("%w: %d bytes", ErrTokenMalformed, len(bearer))
	}
	var c claims
	t, _, err := jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(bearer, &c)
	switch {
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return nil, "", ErrTokenAlgorithm
	case err != nil:
		return nil, "", ErrTokenMalformed
	}
	if err := checkHeader(t.Header); err != nil {
		return nil, "", err
	}
	if CheckDID(c.Issuer, v.dir.dev) != nil {
		return nil, "", ErrTokenIssuer
	}
	// Several audiences would let one of them carry the token on to another.
	if len(c.Audience) != 1 || c.Audience[0] != v.auds[0] && c.Audience[0] != v.auds[1] {
		return nil, "", ErrTokenAudience
	}
	if c.Method != lxm {
		return nil, "", ErrTokenMethod
	}
	if !printable(c.ID, maxJTI) {
		return nil, "", ErrTokenNoID
	}
	if err := v.checkTimes(&c); err != nil {
		return nil, "", err
	}
	return &c, c.Audience[0], nil
}

func checkHeader(h map[string]any) error {
	if alg := h["alg"]; alg != "ES256" && alg != "ES256K" {
		return ErrTokenAlgorithm
	}
	if typ, ok := h["typ"]; ok {
		if s, isText := typ.(string); !isText || !strings.EqualFold(s, "JWT") {
			return ErrTokenType
		}
	}
	if kid, ok := h["kid"]; ok && kid != "#atproto" {
		return ErrTokenKey
	}
	for k := range h {
		switch k {
		case "alg", "typ", "kid":
		case "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256": // ways to bring one's own key
			return ErrTokenKey
		case "crit", "b64", "zip", "enc", "cty": // change what the token means
			return ErrTokenMalformed
		}
	}
	return nil
}

func (v *Verifier) checkTimes(c *claims) error {
	if c.ExpiresAt == nil || c.IssuedAt == nil {
		return fmt.Errorf("%w: exp and iat are required", ErrTokenLifetime)
	}
	now, exp, iat := v.clock.Now(), c.ExpiresAt.Time, c.IssuedAt.Time
	switch life := exp.Sub(iat); {
	// The text names the claim and the difference: a clock that is off by seconds is hard to find otherwise.
	case life <= 0 || life > MaxTokenLife:
		return fmt.Errorf("%w: exp is %s after iat, allowed is up to %s", ErrTokenLifetime, life, MaxTokenLife)
	case now.After(exp.Add(leeway)):
		return fmt.Errorf("%w: exp was %s ago", ErrTokenExpired, now.Sub(exp).Round(time.Second))
	case iat.After(now.Add(leeway)):
		return fmt.Errorf("%w: iat is %s ahead of our clock", ErrTokenEarly, iat.Sub(now).Round(time.Second))
	case c.NotBefore != nil && c.NotBefore.After(now.Add(leeway)):
		return fmt.Errorf("%w: nbf is %s ahead of our clock", ErrTokenEarly, c.NotBefore.Sub(now).Round(time.Second))
	}
	return nil
}

// checkSignature resolves the issuer and verifies; if the signature fails it asks once more for the
// issuer's document, since the key may be new.
func (v *Verifier) checkSignature(ctx context.Context, bearer, aud string, method syntax.NSID, iss string) error {
	id, err := v.dir.Lookup(ctx, iss)
	if err != nil {
		return err
	}
	err = v.validate(ctx, bearer, aud, method, id)
	if !errors.Is(err, ErrSignature) || !v.dir.Purge(ctx, iss) {
		return err
	}
	id, err = v.dir.Lookup(ctx, iss)
	if err != nil {
		return err
	}
	return v.validate(ctx, bearer, aud, method, id)
}

// validate hands the token to indigo's validator, bound to the identity already resolved. The signature is
// tried before that, because the validator answers a bad one by logging and resolving again for anybody.
func (v *Verifier) validate(ctx context.Context, bearer, aud string, method syntax.NSID, id *Identity) error {
	key, err := id.PublicKey()
	if err != nil {
		return err
	}
	if !signed(bearer, key) {
		return ErrSignature
	}
	val := auth.ServiceAuthValidator{Audience: aud, Dir: fixed{id.doc}, TimestampLeeway: leeway}
	_, err = val.Validate(ctx, bearer, &method)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return ErrSignature
	case errors.Is(err, jwt.ErrTokenExpired):
		return ErrTokenExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return ErrTokenEarly
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return ErrTokenAudience
	default:
		return ErrTokenMalformed
	}
}

func signed(token string, key atcrypto.PublicKey) bool {
	i := strings.LastIndexByte(token, '.')
	sig, err := jwt.NewParser(jwt.WithStrictDecoding()).DecodeSegment(token[i+1:])
	// High-S signatures pass, as in indigo: many JWT libraries make them. Replay is stopped by jti.
	return err == nil && len(sig) == 64 && key.HashAndVerifyLenient([]byte(token[:i]), sig) == nil && algFits(token, key)
}

// algFits says whether the header names the algorithm of the key's curve.
func algFits(token string, key atcrypto.PublicKey) bool {
	t, _, err := jwt.NewParser().ParseUnverified(token, &claims{})
	if err != nil {
		return false
	}
	switch key.(type) {
	case *atcrypto.PublicKeyP256:
		return t.Method.Alg() == "ES256"
	case *atcrypto.PublicKeyK256:
		return t.Method.Alg() == "ES256K"
	default:
		return false
	}
}

// printable says whether s is 1 to max printable ASCII characters.
func printable(s string, max int) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return s != "" && len(s) <= max
}

// fixed is an indigo directory that knows one identity.
type fixed struct{ id *indigo.Identity }

// LookupDID implements indigo's Directory.
func (f fixed) LookupDID(_ context.Context, did syntax.DID) (*indigo.Identity, error) {
	if did != f.id.DID {
		return nil, indigo.ErrDIDNotFound
	}
	return f.id, nil
}

// LookupHandle implements indigo's Directory: tokens are never issued by handles.
func (fixed) LookupHandle(context.Context, syntax.Handle) (*indigo.Identity, error) {
	return nil, indigo.ErrHandleNotFound
}

// Lookup implements indigo's Directory.
func (f fixed) Lookup(ctx context.Context, a syntax.AtIdentifier) (*indigo.Identity, error) {
	did, err := a.AsDID()
	if err != nil {
		return nil, indigo.ErrHandleNotFound
	}
	return f.LookupDID(ctx, did)
}

// Purge implements indigo's Directory: there is nothing to forget.
func (fixed) Purge(context.Context, syntax.AtIdentifier) error { return nil }
