package identity

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestB101TokensForOthersAreRefused signs tokens for every audience but ours, and for ours in other spellings.
func TestB101TokensForOthersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, used := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	head := fields{"alg": "ES256", "typ": "JWT"}
	for _, aud := range []any{
		"did:web:other.example", nil, "", " ", "DID:WEB:SPINDLE.TEST", "did:web:SPINDLE.test", ourDID + "#spindle", ourDID + "#atproto",
		ourDID + "/", ourDID + ".", ourDID + "#", ourDID + "#tangled_spindle#", ourDID + "#TANGLED_SPINDLE", ourDID + " ", "https://spindle.test",
		"spindle.test", ourDID + "%3A443", []string{}, []string{ourDID, "did:web:other.example"}, []string{ourDID, ourDID}, []string{""},
		[]string{"did:web:other.example"},
	} {
		_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did).with(fields{"aud": aud})), method)
		require.ErrorIs(t, err, ErrTokenAudience, "%q", aud)
		require.Equal(t, "TokenAudience", Reason(err))
	}
	for _, aud := range []any{42, true, map[string]string{"a": ourDID}, []any{ourDID, 1}} {
		_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did).with(fields{"aud": aud})), method)
		require.Error(t, err, "%v", aud)
	}
	require.Empty(t, used.used)
	require.Zero(t, w.requests("plc.test/"+a.did), "nobody was asked about them")
	for _, aud := range []any{ourDID, ourDID + "#tangled_spindle", []string{ourDID}} {
		_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did).with(fields{"aud": aud})), method)
		require.NoError(t, err, "%q", aud)
	}
}

// TestB102TokensNameTheirMethod calls the adding of a secret with tokens that name no method, another, or the same in
// another spelling.
func TestB102TokensNameTheirMethod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, used := newVerifier(w)
	a := w.account(t, plcName(), true, nil)
	head := fields{"alg": "ES256K", "typ": "JWT"}
	const add = "sh.tangled.repo.addSecret"
	for _, lxm := range []any{
		nil, "", "*", "sh.tangled.repo.*", "sh.tangled.repo.listSecrets", "SH.TANGLED.REPO.ADDSECRET", "sh.tangled.repo.addsecret", add + " ",
		" " + add, add + "\n", add + "#main", "/xrpc/" + add, method,
	} {
		_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did).with(fields{"lxm": lxm})), add)
		require.ErrorIs(t, err, ErrTokenMethod, "%q", lxm)
		require.Equal(t, "TokenMethod", Reason(err))
	}
	for _, lxm := range []any{1, []string{add}, map[string]string{}, true} {
		_, err := v.Verify(t.Context(), token(t, a.key, head, goodClaims(a.did).with(fields{"lxm": lxm})), add)
		require.ErrorIs(t, err, ErrTokenMalformed, "%v", lxm)
	}
	require.Empty(t, used.used)
	tok := token(t, a.key, head, goodClaims(a.did).with(fields{"lxm": add}))
	_, err := v.Verify(t.Context(), tok, "sh.tangled.repo.listSecrets")
	require.ErrorIs(t, err, ErrTokenMethod, "a good token at another method")
	_, err = v.Verify(t.Context(), tok, add)
	require.NoError(t, err)
}

// TestB103OddTimes gives exp and iat in every form that JSON has.
func TestB103OddTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, _ := newVerifier(w)
	a := w.account(t, plcName(), false, nil)
	now := time.Now().Unix()
	for name, c := range map[string]fields{
		"no exp": {"exp": nil}, "no iat": {"iat": nil}, "text": {"exp": "1790000000"}, "negative": {"exp": -1}, "huge": {"exp": 1e30},
		"ten years": {"exp": now + 10*365*86400}, "iat in ten minutes": {"iat": now + 600, "exp": now + 660}, "over": {"iat": now - 120, "exp": now - 60},
		"list": {"exp": []int64{now + 60}}, "null": {"exp": fmt.Stringer(nil)}, "nbf tomorrow": {"nbf": now + 86400}, "backwards": {"iat": now + 2, "exp": now - 2},
	} {
		_, err := v.Verify(t.Context(), token(t, a.key, fields{"alg": "ES256"}, goodClaims(a.did).with(c)), method)
		require.Error(t, err, name)
		require.NotEqual(t, "Other", Reason(err), name)
	}
	for name, c := range map[string]fields{
		"two seconds ahead": {"iat": now + 2, "exp": now + 60}, "two seconds over": {"iat": now - 60, "exp": now - 2}, "a fraction": {"exp": float64(now) + 60.5},
	} {
		_, err := v.Verify(t.Context(), token(t, a.key, fields{"alg": "ES256"}, goodClaims(a.did).with(c)), method)
		require.NoError(t, err, name)
	}
}

// TestB124DocumentsLeadNowhereInside serves documents and proofs that redirect or name our own machine.
func TestB124DocumentsLeadNowhereInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trapped := 0
	w.mu.Lock()
	w.other["wren.test"] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped++ })
	w.mu.Unlock()
	for _, to := range []string{"http://wren.test/", "http://169.254.169.254/", "file:///etc/passwd", "https://pds.test/"} {
		a := w.account(t, plcName(), false, map[string]map[string]any{"org.tangled.a/x": {"$type": "org.tangled.a"}})
		w.mu.Lock()
		w.other["pds.test"] = http.RedirectHandler(to, http.StatusFound)
		w.other["odd.test"] = http.RedirectHandler(to, http.StatusMovedPermanently)
		w.mu.Unlock()
		_, err := w.prover().Record(t.Context(), a.did, "org.tangled.a", "x")
		require.ErrorIs(t, err, ErrBadDocument, to)
		_, err = w.directory().Lookup(t.Context(), "did:web:odd.test")
		require.ErrorIs(t, err, ErrBadDocument, to)
	}
	// Outside of dev, whatever a document names is dialled by the guard, and these are no origins at all.
	for _, endpoint := range []string{
		"http://127.0.0.1", "https://127.0.0.1:80@pds.test", "https://pds.test@127.0.0.1", "https://pds.test/../..", "https://pds.test?x",
		"https://pds.test#", "https://pds。test", "https://pds.test:99999", "https://:22", "https://pds.test\n", "\thttps://pds.test", "file:///etc/passwd",
		"https://[::1%25lo]", "https://[::ffff:127.0.0.1]",
	} {
		_, err := checkEndpoint(endpoint, false)
		require.ErrorIs(t, err, ErrBadDocument, "%q", endpoint)
	}
	require.Zero(t, trapped)
}
