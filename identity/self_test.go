package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
)

func newSelf(t testing.TB, host string) *Self {
	t.Helper()
	path := filepath.Join(t.TempDir(), "identity.pem")
	require.NoError(t, GenerateKeyFile(path))
	s, err := OpenSelf(SelfConfig{Hostname: host, KeyPath: path})
	require.NoError(t, err)
	return s
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key.pem")
	_, err := LoadKeyFile(path)
	require.ErrorIs(t, err, ErrKeyFile)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "spindle key generate")

	require.NoError(t, GenerateKeyFile(path))
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
	k, err := LoadKeyFile(path)
	require.NoError(t, err)
	require.ErrorIs(t, GenerateKeyFile(path), fs.ErrExist, "never overwritten")
	again, err := LoadKeyFile(path)
	require.NoError(t, err)
	require.True(t, k.Equal(again))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no half-made file stays behind")

	for _, mode := range []fs.FileMode{0o640, 0o604, 0o660, 0o644, 0o610, 0o666} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = LoadKeyFile(path)
		require.ErrorIs(t, err, ErrKeyFile, mode)
		require.ErrorContains(t, err, "chmod 600 '"+path+"'")
	}
	require.NoError(t, os.Chmod(path, 0o400))
	_, err = LoadKeyFile(path)
	require.NoError(t, err)
	_, err = LoadKeyFile(dir)
	require.ErrorIs(t, err, ErrKeyFile)
	for _, content := range []string{"", "hello", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"} {
		p := filepath.Join(dir, "bad.pem")
		require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
		_, err = LoadKeyFile(p)
		require.ErrorIs(t, err, ErrKeyFile)
		require.NotContains(t, err.Error(), "AAAA")
	}
}

func TestKeyFileByOpenSSL(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for curve, good := range map[string]bool{"prime256v1": true, "secp384r1": false, "secp256k1": false} {
		p := filepath.Join(t.TempDir(), "k.pem")
		out, err := exec.CommandContext(t.Context(), openssl, "ecparam", "-name", curve, "-genkey", "-out", p).CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, os.Chmod(p, 0o600))
		_, err = LoadKeyFile(p)
		require.Equal(t, good, err == nil, "%s: %v", curve, err)
		if !good {
			continue
		}
		p8 := p + ".p8"
		out, err = exec.CommandContext(t.Context(), openssl, "pkcs8", "-topk8", "-nocrypt", "-in", p, "-out", p8).CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, os.Chmod(p8, 0o600))
		_, err = LoadKeyFile(p8)
		require.NoError(t, err)
	}
}

func TestSelfDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSelf(t, "spindle.test")
	require.Equal(t, "did:web:spindle.test", s.DID())
	require.Equal(t, "did:web:spindle.test#tangled_spindle", s.Audience())
	w.docs[s.DID()] = s.Document()
	id, err := w.directory().Lookup(t.Context(), s.DID())
	require.NoError(t, err, "the resolver reads what we publish")
	svc, err := id.Service(SpindleService)
	require.NoError(t, err)
	require.Equal(t, Service{Type: SpindleType, URL: "https://spindle.test"}, svc)
	k, err := id.PublicKey()
	require.NoError(t, err)
	own, err := s.key.PublicKey()
	require.NoError(t, err)
	require.True(t, own.Equal(k))

	path := filepath.Join(t.TempDir(), "k.pem")
	require.NoError(t, GenerateKeyFile(path))
	dev, err := OpenSelf(SelfConfig{Hostname: "localhost:6555", KeyPath: path, Endpoint: "http://localhost:6555/"})
	require.NoError(t, err)
	require.Equal(t, "did:web:localhost%3A6555", dev.DID())
	require.Contains(t, string(dev.Document()), `"http://localhost:6555"`)
	for _, host := range []string{"", "Spindle.example.com", "a/b", "u@example.com", "a b", "https://example.com", "example.com?x", "[::1]"} {
		_, err = OpenSelf(SelfConfig{Hostname: host, KeyPath: path})
		require.ErrorIs(t, err, ErrBadDID, "%q", host)
	}
}

// An outside library checks our service token with the key of our published document.
func TestServiceTokenVerifiedByOutsideLibrary(t *testing.T) {
	t.Parallel()
	s := newSelf(t, "spindle.test")
	raw, err := s.Mint(t.Context(), "did:web:knot.test#tangled_knot", "org.tangled.repo.blob", time.Minute)
	require.NoError(t, err)

	var doc struct {
		VerificationMethod []struct{ ID, PublicKeyMultibase string }
	}
	require.NoError(t, json.Unmarshal(s.Document(), &doc))
	require.Len(t, doc.VerificationMethod, 1)
	pub, err := atcrypto.ParsePublicMultibase(doc.VerificationMethod[0].PublicKeyMultibase)
	require.NoError(t, err)
	key := joseKey(t, pub)

	tok, err := jwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	var (
		std  jwt.Claims
		more struct {
			Method string `json:"lxm"`
		}
	)
	require.NoError(t, tok.Claims(key, &std, &more))
	require.NoError(t, std.ValidateWithLeeway(jwt.Expected{Issuer: s.DID(), AnyAudience: jwt.Audience{"did:web:knot.test#tangled_knot"}, Time: time.Now()}, 0))
	require.Equal(t, "org.tangled.repo.blob", more.Method)
	require.NotEmpty(t, std.ID)
	require.LessOrEqual(t, std.Expiry.Time().Sub(std.IssuedAt.Time()), time.Minute)
	other := newSelf(t, "spindle.test")
	otherPub, err := other.key.PublicKey()
	require.NoError(t, err)
	wrong := joseKey(t, otherPub)
	require.Error(t, tok.Claims(wrong, &std))
}

// joseKey reads the published key with the standard library alone. indigo's own JWK leaves leading zeros of a
// coordinate out (one key in 128), which RFC 7518 section 6.2.1.2 forbids and go-jose refuses.
func joseKey(t *testing.T, pub atcrypto.PublicKey) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), pub.UncompressedBytes())
	require.NoError(t, err)
	return key
}

func TestMintRefuses(t *testing.T) {
	t.Parallel()
	s := newSelf(t, "spindle.test")
	for _, c := range []struct {
		aud, lxm string
		ttl      time.Duration
	}{
		{"https://knot.test", "org.tangled.repo.blob", time.Minute}, {"", "org.tangled.repo.blob", time.Minute},
		{"did:web:knot.test", "", time.Minute}, {"did:web:knot.test", "nope", time.Minute}, {"did:web:knot.test", "*", time.Minute},
		{"did:web:knot.test", "org.tangled.repo.blob", 0}, {"did:web:knot.test", "org.tangled.repo.blob", -time.Minute},
		{"did:web:knot.test", "org.tangled.repo.blob", MaxTokenLife + 1},
	} {
		_, err := s.Mint(t.Context(), c.aud, c.lxm, c.ttl)
		require.Error(t, err, c)
	}
}
