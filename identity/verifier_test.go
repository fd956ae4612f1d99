package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/stretchr/testify/require"
)

// usedTokens is a token store in memory.
type usedTokens struct {
	mu   sync.Mutex
	used map[string]time.Time
	err  error
}

func (u *usedTokens) UseToken(_ context.Context, iss, jti string, exp time.Time) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return false, u.err
	}
	k := iss + " " + jti
	if _, ok := u.used[k]; ok {
		return false, nil
	}
	u.used[k] = exp
	return true, nil
}

const (
	ourDID = "did:web:spindle.test"
	method = "org.tangled.event.notifyEvent"
)

func newVerifier(w *world) (*Verifier, *usedTokens) {
	u := &usedTokens{used: map[string]time.Time{}}
	return NewVerifier(VerifierConfig{Audience: ourDID, Directory: w.directory(), Tokens: u}), u
}

type fields map[string]any

// with is f with changes; a nil value takes the field away.
func (f fields) with(changes fields) fields {
	out := maps.Clone(f)
	for k, v := range changes {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = v
	}
	return out
}

func segment(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(b)
}

func token(t testing.TB, key atcrypto.PrivateKey, header, body any) string {
	t.Helper()
	s := segment(t, header) + "." + segment(t, body)
	sig, err := key.HashAndSign([]byte(s))
	require.NoError(t, err)
	return s + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func goodClaims(iss string) fields {
	now := time.Now().Unix()
	return fields{"iss": iss, "aud": ourDID, "lxm": method, "iat": now, "exp": now + 60, "jti": rand16()}
}

func rand16() string { return plcName()[8:] }

func TestT10GoodTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, u := newVerifier(w)
	for alg, k256 := range map[string]bool{"ES256": false, "ES256K": true} {
		a := w.account(t, plcName(), k256, nil)
		head := fields{"alg": alg, "typ": "JWT"}
		good := goodClaims(a.did)
		for name, tok := range map[string]string{
			"plain":         token(t, a.key, head, good),
			"with fragment": token(t, a.key, head, good.with(fields{"aud": ourDID + "#tangled_spindle", "jti": rand16()})),
			"array of one":  token(t, a.key, head, good.with(fields{"aud": []string{ourDID}, "jti": rand16()})),
			"no typ":        token(t, a.key, fields{"alg": alg}, good.with(fields{"jti": rand16()})),
			"kid":           token(t, a.key, head.with(fields{"kid": "#atproto"}), good.with(fields{"jti": rand16()})),
			"five minutes":  token(t, a.key, head, good.with(fields{"jti": rand16(), "exp": time.Now().Unix() + 300})),
			"leeway":        token(t, a.key, head, good.with(fields{"jti": rand16(), "iat": time.Now().Unix() + 3})),
		} {
			c, err := v.Verify(t.Context(), tok, method)
			require.NoError(t, err, name)
			require.Equal(t, a.did, c.DID)
			require.Contains(t, c.Audience, ourDID)
			require.NotEmpty(t, c.ID)
			require.False(t, c.Expires.IsZero())
			_, err = v.Verify(t.Context(), tok, method)
			require.ErrorIs(t, err, ErrTokenReplayed, name)
		}
		nsid := syntax.NSID(method)
		lib, err := auth.SignServiceAuth(syntax.DID(a.did), ourDID, time.Minute, &nsid, a.key)
		require.NoError(t, err)
		_, err = v.Verify(t.Context(), lib, method)
		require.NoError(t, err, "indigo's own tokens")
	}
	require.Len(t, u.used, 16)
	for _, exp := range u.used {
		require.Greater(t, time.Until(exp), 55*time.Second, "remembered at least as long as the token is good")
	}
}

func TestT10Matrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, u := newVerifier(w)
	a, b := w.account(t, plcName(), false, nil), w.account(t, plcName(), true, nil)
	keyless := plcName()
	w.put(keyless, map[string]any{"id": keyless})
	head := fields{"alg": "ES256", "typ": "JWT"}
	good := goodClaims(a.did)
	now := time.Now().Unix()
	claim := func(c fields) string { return token(t, a.key, head, good.with(c)) }
	header := func(h fields) string { return token(t, a.key, head.with(h), good) }
	parts := strings.Split(token(t, a.key, head, good), ".")
	cases := map[string]struct {
		tok  string
		want error
	}{
		"empty":                    {"", ErrTokenMalformed},
		"no dots":                  {"abc", ErrTokenMalformed},
		"two segments":             {parts[0] + "." + parts[1], ErrTokenMalformed},
		"four segments":            {strings.Join(parts, ".") + ".x", ErrTokenMalformed},
		"huge":                     {strings.Repeat("a", maxToken+1), ErrTokenMalformed},
		"header no JSON":           {"bm8." + parts[1] + "." + parts[2], ErrTokenMalformed},
		"claims no JSON":           {parts[0] + ".bm8." + parts[2], ErrTokenMalformed},
		"padded":                   {parts[0] + "." + parts[1] + "." + parts[2] + "==", ErrTokenMalformed},
		"with the word Bearer":     {"Bearer " + strings.Join(parts, "."), ErrTokenMalformed},
		"alg none":                 {segment(t, head.with(fields{"alg": "none"})) + "." + parts[1] + ".", ErrTokenAlgorithm},
		"alg missing":              {header(fields{"alg": nil}), ErrTokenAlgorithm},
		"alg HS256":                {header(fields{"alg": "HS256"}), ErrTokenAlgorithm},
		"alg RS256":                {header(fields{"alg": "RS256"}), ErrTokenAlgorithm},
		"alg lower case":           {header(fields{"alg": "es256"}), ErrTokenAlgorithm},
		"alg of another curve":     {header(fields{"alg": "ES256K"}), ErrSignature},
		"typ access token":         {header(fields{"typ": "at+jwt"}), ErrTokenType},
		"typ DPoP":                 {header(fields{"typ": "dpop+jwt"}), ErrTokenType},
		"typ number":               {header(fields{"typ": 7}), ErrTokenType},
		"kid other":                {header(fields{"kid": "#oidc"}), ErrTokenKey},
		"kid with DID":             {header(fields{"kid": a.did + "#atproto"}), ErrTokenKey},
		"own key in header":        {header(fields{"jwk": fields{"kty": "EC"}}), ErrTokenKey},
		"key by URL":               {header(fields{"jku": "https://evil.example.com"}), ErrTokenKey},
		"crit":                     {header(fields{"crit": []string{"exp"}}), ErrTokenMalformed},
		"iss missing":              {claim(fields{"iss": nil}), ErrTokenIssuer},
		"iss URL":                  {claim(fields{"iss": "https://spindle.test"}), ErrTokenIssuer},
		"iss with fragment":        {claim(fields{"iss": a.did + "#atproto"}), ErrTokenIssuer},
		"iss inside":               {claim(fields{"iss": "did:web:localhost"}), ErrTokenIssuer},
		"iss number":               {claim(fields{"iss": 5}), ErrTokenMalformed},
		"iss unknown":              {claim(fields{"iss": plcName()}), ErrNotFound},
		"iss without key":          {claim(fields{"iss": keyless}), ErrBadDocument},
		"iss somebody else":        {claim(fields{"iss": b.did}), ErrSignature},
		"aud missing":              {claim(fields{"aud": nil}), ErrTokenAudience},
		"aud empty":                {claim(fields{"aud": ""}), ErrTokenAudience},
		"aud another":              {claim(fields{"aud": "did:web:other.test"}), ErrTokenAudience},
		"aud upper case":           {claim(fields{"aud": "did:web:SPINDLE.test"}), ErrTokenAudience},
		"aud other fragment":       {claim(fields{"aud": ourDID + "#spindle"}), ErrTokenAudience},
		"aud slash":                {claim(fields{"aud": ourDID + "/"}), ErrTokenAudience},
		"aud dot":                  {claim(fields{"aud": ourDID + "."}), ErrTokenAudience},
		"aud two":                  {claim(fields{"aud": []string{ourDID, "did:web:other.test"}}), ErrTokenAudience},
		"aud none in array":        {claim(fields{"aud": []string{}}), ErrTokenAudience},
		"lxm missing":              {claim(fields{"lxm": nil}), ErrTokenMethod},
		"lxm another":              {claim(fields{"lxm": "org.tangled.ci.cancelPipeline"}), ErrTokenMethod},
		"lxm star":                 {claim(fields{"lxm": "*"}), ErrTokenMethod},
		"lxm case":                 {claim(fields{"lxm": strings.ToLower(method)}), ErrTokenMethod},
		"exp missing":              {claim(fields{"exp": nil}), ErrTokenLifetime},
		"iat missing":              {claim(fields{"iat": nil}), ErrTokenLifetime},
		"expired":                  {claim(fields{"iat": now - 100, "exp": now - 20}), ErrTokenExpired},
		"life of a year":           {claim(fields{"exp": now + 365*86400}), ErrTokenLifetime},
		"life of 301 s":            {claim(fields{"exp": now + 301}), ErrTokenLifetime},
		"exp before iat":           {claim(fields{"iat": now + 2, "exp": now + 1}), ErrTokenLifetime},
		"iat in the future":        {claim(fields{"iat": now + 60, "exp": now + 120}), ErrTokenEarly},
		"nbf in the future":        {claim(fields{"nbf": now + 60}), ErrTokenEarly},
		"exp text":                 {claim(fields{"exp": "soon"}), ErrTokenMalformed},
		"exp beyond numbers":       {claim(fields{"exp": 1e300}), ErrTokenLifetime},
		"jti missing":              {claim(fields{"jti": nil}), ErrTokenNoID},
		"jti empty":                {claim(fields{"jti": ""}), ErrTokenNoID},
		"jti long":                 {claim(fields{"jti": strings.Repeat("x", maxJTI+1)}), ErrTokenNoID},
		"jti unprintable":          {claim(fields{"jti": "a\nb"}), ErrTokenNoID},
		"signed by another":        {token(t, b.key, head, good), ErrSignature},
		"signature cut":            {parts[0] + "." + parts[1] + "." + parts[2][:40], ErrSignature},
		"signature missing":        {parts[0] + "." + parts[1] + ".", ErrSignature},
		"claims changed":           {parts[0] + "." + segment(t, good.with(fields{"jti": "another"})) + "." + parts[2], ErrSignature},
		"header changed":           {segment(t, head.with(fields{"kid": "#atproto"})) + "." + parts[1] + "." + parts[2], ErrSignature},
		"array instead of claims":  {token(t, a.key, head, []string{"x"}), ErrTokenMalformed},
		"null claims":              {token(t, a.key, head, nil), ErrTokenIssuer},
		"an ID token's issuer+aud": {claim(fields{"iss": "https://spindle.test", "aud": "sts.example.com", "lxm": nil}), ErrTokenIssuer},
	}
	require.GreaterOrEqual(t, len(cases), 40)
	for name, c := range cases {
		_, err := v.Verify(t.Context(), c.tok, method)
		require.ErrorIs(t, err, c.want, name)
		require.NotEqual(t, "Other", Reason(err), name)
		require.False(t, Temporary(err), name)
		if len(c.tok) > 20 {
			require.NotContains(t, err.Error(), c.tok, name)
		}
	}
	require.Empty(t, u.used, "no refused token is used up")
	_, err := v.Verify(t.Context(), strings.Join(parts, "."), method)
	require.NoError(t, err, "and the good one still is good")
	_, err = v.Verify(t.Context(), strings.Join(parts, "."), "")
	require.Error(t, err, "no method is no permission")
}

func TestT10ReplayHundredfold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, _ := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	tok := token(t, a.key, fields{"alg": "ES256"}, goodClaims(a.did))
	var ok, replayed atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			switch _, err := v.Verify(t.Context(), tok, method); {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, ErrTokenReplayed):
				replayed.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, ok.Load())
	require.EqualValues(t, 99, replayed.Load())
}

func TestT10MethodPairs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, _ := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	methods := []string{method, "org.tangled.ci.cancelPipeline", "org.tangled.ci.retryPipeline", "org.tangled.ci.putSecret"}
	for _, made := range methods {
		for _, called := range methods {
			_, err := v.Verify(t.Context(), token(t, a.key, fields{"alg": "ES256"}, goodClaims(a.did).with(fields{"lxm": made})), called)
			if made == called {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrTokenMethod)
			}
		}
	}
}

func TestB104KeyRotatedAndFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, u := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	head := fields{"alg": "ES256"}
	_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did)), method)
	require.NoError(t, err)
	fresh := newKey(t, false)
	w.put(a.did, docFor(t, a.did, fresh))
	_, err = v.Verify(t.Context(), token(t, fresh, head, goodClaims(a.did)), method)
	require.NoError(t, err, "a new key is found")
	_, err = v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did)), method)
	require.ErrorIs(t, err, ErrSignature, "and the old one is dead")
	for range 50 {
		_, err = v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did)), method)
		require.ErrorIs(t, err, ErrSignature)
	}
	require.Equal(t, 2, w.requests("plc.test/"+a.did), "forged tokens do not make us hammer the directory")
	_, err = v.Verify(t.Context(), token(t, fresh, head, goodClaims(a.did)), method)
	require.NoError(t, err, "nor lock the issuer out")

	u.err = errors.New("disk full")
	_, err = v.Verify(t.Context(), token(t, fresh, head, goodClaims(a.did)), method)
	require.True(t, Temporary(err))
	w.other["plc.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) })
	_, err = v.Verify(t.Context(), token(t, fresh, head, goodClaims(plcName())), method)
	require.True(t, Temporary(err), "an issuer that cannot be resolved now is no refusal")
}

func TestB103ClockDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, _ := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	now := time.Now().Unix()
	for _, c := range []struct {
		iat, exp int64
		want     error
		text     string
	}{
		{now + 2, now + 62, nil, ""},
		{now - 60, now - 2, nil, ""},
		{now + 600, now + 660, ErrTokenEarly, "ahead of our clock"},
		{now - 600, now - 540, ErrTokenExpired, "exp was 9m"},
		{now, now + 10*365*86400, ErrTokenLifetime, "exp is 87600h0m0s after iat"},
		{now, -1, ErrTokenLifetime, "after iat"},
	} {
		_, err := v.Verify(t.Context(), token(t, a.key, fields{"alg": "ES256"}, goodClaims(a.did).with(fields{"iat": c.iat, "exp": c.exp})), method)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, c.text)
	}
}

func FuzzVerify(f *testing.F) {
	key := newKey(f, false)
	f.Add(token(f, key, fields{"alg": "ES256"}, goodClaims(plcName())))
	f.Add("a.b.c")
	v := NewVerifier(VerifierConfig{Audience: ourDID, Directory: &Directory{}})
	f.Fuzz(func(_ *testing.T, s string) {
		_, _, err := v.read(s, method)
		_ = err // any answer will do, as long as it comes
	})
}

func BenchmarkVerify(b *testing.B) {
	w := &world{docs: map[string][]byte{}, repos: map[string]*signedRepo{}, seen: map[string]int{}}
	a := w.account(b, plcName(), false, nil)
	tok := token(b, a.key, fields{"alg": "ES256"}, goodClaims(a.did))
	pub, err := a.key.PublicKey()
	require.NoError(b, err)
	for b.Loop() {
		if !signed(tok, pub) {
			b.Fatal("refused")
		}
	}
}
