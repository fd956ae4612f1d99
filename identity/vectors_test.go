package identity

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	indigo "github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/stretchr/testify/require"
)

func vectors(t *testing.T, name string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("testdata/interop/" + name)
	require.NoError(t, err)
	for _, l := range strings.Split(string(b), "\n") {
		if l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	require.NotEmpty(t, out)
	return out
}

func readVectors(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/interop/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, v))
}

// TestVectorsNames reads names as they are read here. Our rules for DIDs and hosts are narrower than the syntax: what
// they take is valid, and what is not valid they refuse.
func TestVectorsNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.prover()
	proves := func(collection, rkey string) bool {
		_, err := p.Record(t.Context(), "did:web:nobody.test", collection, rkey)
		require.Error(t, err)
		return Reason(err) != "BadProof" // the names are looked at first
	}
	taken := 0
	for _, v := range vectors(t, "syntax/did_syntax_valid.txt") {
		_, err := syntax.ParseDID(v)
		require.NoError(t, err, v)
		if CheckDID(v, false) == nil {
			taken++
			require.True(t, strings.HasPrefix(v, "did:plc:") || strings.HasPrefix(v, "did:web:"), v)
		}
	}
	require.Positive(t, taken)
	for _, v := range vectors(t, "syntax/did_syntax_invalid.txt") {
		require.ErrorIs(t, CheckDID(v, false), ErrBadDID, v)
		require.ErrorIs(t, CheckDID(v, true), ErrBadDID, v)
	}
	for _, v := range vectors(t, "syntax/handle_syntax_invalid.txt") {
		require.Error(t, checkHost(v, true), v)
	}
	taken = 0
	for _, v := range vectors(t, "syntax/handle_syntax_valid.txt") {
		if checkHost(v, false) == nil {
			taken++
		}
	}
	require.Positive(t, taken)
	for _, v := range vectors(t, "syntax/nsid_syntax_valid.txt") {
		require.True(t, proves(v, "self"), v)
	}
	for _, v := range vectors(t, "syntax/nsid_syntax_invalid.txt") {
		require.False(t, proves(v, "self"), v)
	}
	for _, v := range vectors(t, "syntax/recordkey_syntax_valid.txt") {
		require.True(t, proves("org.tangled.a", v), v)
	}
	for _, v := range vectors(t, "syntax/recordkey_syntax_invalid.txt") {
		require.False(t, proves("org.tangled.a", v), v)
	}
}

// TestVectorsSignatures checks signatures as commits are checked, and as tokens are: tokens may have a high S, and
// nothing may be DER.
func TestVectorsSignatures(t *testing.T) {
	t.Parallel()
	var all []struct {
		Comment, MessageBase64, Algorithm, PublicKeyDid, SignatureBase64 string
		ValidSignature                                                   bool
		Tags                                                             []string
	}
	readVectors(t, "crypto/signature-fixtures.json", &all)
	require.Len(t, all, 6)
	for _, v := range all {
		key := keyOf(t, v.PublicKeyDid)
		msg, err := base64.RawStdEncoding.DecodeString(v.MessageBase64)
		require.NoError(t, err)
		sig, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v.SignatureBase64, "="))
		require.NoError(t, err)
		require.Equal(t, v.ValidSignature, key.HashAndVerify(msg, sig) == nil, v.Comment)
		highS := len(v.Tags) > 0 && v.Tags[0] == "high-s"
		require.Equal(t, v.ValidSignature || highS, len(sig) == 64 && key.HashAndVerifyLenient(msg, sig) == nil, v.Comment)
		other := keyOf(t, all[map[bool]int{true: 1, false: 0}[v.Algorithm == "ES256"]].PublicKeyDid)
		require.Error(t, other.HashAndVerify(msg, sig), "another's key")
	}
}

// keyOf reads a key as it stands in a DID document.
func keyOf(t *testing.T, didKey string) atcrypto.PublicKey {
	t.Helper()
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	doc := indigo.ParseIdentity(&indigo.DIDDocument{DID: did, VerificationMethod: []indigo.DocVerificationMethod{{
		ID: did + "#atproto", Type: "Multikey", Controller: did, PublicKeyMultibase: strings.TrimPrefix(didKey, "did:key:"),
	}}})
	key, err := (&Identity{DID: did, doc: &doc}).PublicKey()
	require.NoError(t, err)
	require.Equal(t, didKey, key.DIDKey())
	return key
}

// TestVectorsKeys makes public keys of private ones.
func TestVectorsKeys(t *testing.T) {
	t.Parallel()
	var k256 []struct{ PrivateKeyBytesHex, PublicDidKey string }
	readVectors(t, "crypto/w3c_didkey_K256.json", &k256)
	require.NotEmpty(t, k256)
	for _, v := range k256 {
		raw, err := hex.DecodeString(v.PrivateKeyBytesHex)
		require.NoError(t, err)
		priv, err := atcrypto.ParsePrivateBytesK256(raw)
		require.NoError(t, err)
		pub, err := priv.PublicKey()
		require.NoError(t, err)
		require.Equal(t, v.PublicDidKey, keyOf(t, pub.DIDKey()).DIDKey())
	}
	var p256 []struct{ PublicDidKey string }
	readVectors(t, "crypto/w3c_didkey_P256.json", &p256)
	for _, v := range p256 {
		keyOf(t, v.PublicDidKey)
	}
}

// TestVectorsTree compares heights and shared beginnings of keys, and finds every one of the example keys by our walk.
func TestVectorsTree(t *testing.T) {
	t.Parallel()
	var heights []struct {
		Key    string
		Height int
	}
	readVectors(t, "mst/key_heights.json", &heights)
	for _, v := range heights {
		require.Equal(t, v.Height, mst.HeightForKey([]byte(v.Key)), v.Key)
	}
	var prefixes []struct {
		Left, Right string
		Len         int
	}
	readVectors(t, "mst/common_prefix.json", &prefixes)
	for _, v := range prefixes {
		require.Equal(t, v.Len, mst.CountPrefixLen([]byte(v.Left), []byte(v.Right)), "%q %q", v.Left, v.Right)
	}
	blocks := map[cid.Cid][]byte{}
	leaf := block(t, blocks, []byte{0xa0})
	tree := mst.NewEmptyTree()
	keys := vectors(t, "mst/example_keys.txt")
	for i, k := range keys {
		if i%3 > 0 {
			_, err := tree.Insert([]byte(k), leaf)
			require.NoError(t, err, k)
		}
	}
	root, err := tree.WriteDiffBlocks(t.Context(), sink{m: blocks})
	require.NoError(t, err)
	for i, k := range keys {
		got, err := findInTree(source(blocks), *root, []byte(k))
		if i%3 == 0 {
			require.ErrorIs(t, err, ErrAbsent, k)
			continue
		}
		require.NoError(t, err, k)
		require.Equal(t, leaf, got)
	}
}

// TestVectorsCommitProofs makes the trees of the fixtures and finds what each commit added, and that what it took away
// is gone, from the blocks of its proof alone.
func TestVectorsCommitProofs(t *testing.T) {
	t.Parallel()
	var all []struct {
		Comment, LeafValue, RootBeforeCommit, RootAfterCommit string
		Keys, Adds, Dels, BlocksInProof                       []string
	}
	readVectors(t, "firehose/commit-proof-fixtures.json", &all)
	require.Len(t, all, 6)
	for _, v := range all {
		leaf := cid.MustParse(v.LeafValue)
		tree := mst.NewEmptyTree()
		for _, k := range v.Keys {
			_, err := tree.Insert([]byte(k), leaf)
			require.NoError(t, err)
		}
		blocks := map[cid.Cid][]byte{}
		before, err := tree.WriteDiffBlocks(t.Context(), sink{m: blocks})
		require.NoError(t, err)
		require.Equal(t, v.RootBeforeCommit, before.String(), v.Comment)
		for _, k := range v.Adds {
			_, err := tree.Insert([]byte(k), leaf)
			require.NoError(t, err)
		}
		for _, k := range v.Dels {
			_, err := tree.Remove([]byte(k))
			require.NoError(t, err)
		}
		after, err := tree.WriteDiffBlocks(t.Context(), sink{m: blocks})
		require.NoError(t, err)
		require.Equal(t, v.RootAfterCommit, after.String(), v.Comment)
		proof := map[cid.Cid][]byte{}
		for _, b := range v.BlocksInProof {
			c := cid.MustParse(b)
			require.Contains(t, blocks, c, "%s: a block of the proof", v.Comment)
			proof[c] = blocks[c]
		}
		for _, k := range v.Adds {
			got, err := findInTree(source(proof), *after, []byte(k))
			require.NoError(t, err, "%s: %s", v.Comment, k)
			require.Equal(t, leaf, got)
		}
		for _, k := range v.Dels {
			_, err := findInTree(source(proof), *after, []byte(k))
			require.ErrorIs(t, err, ErrAbsent, "%s: %s", v.Comment, k)
		}
	}
}
