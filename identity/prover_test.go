package identity

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const declaration = "org.tangled.repo.declaration"

// records makes n declarations, enough for a tree of several levels.
func records(n int) map[string]map[string]any {
	out := map[string]map[string]any{}
	for i := range n {
		out[fmt.Sprintf("%s/repo-%03d", declaration, i)] = map[string]any{
			"$type": declaration, "repo": fmt.Sprintf("did:web:repo-%d.example.com", i), "createdAt": "2026-01-01T00:00:00Z",
		}
	}
	return out
}

func TestT02ProvenRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.prover()
	for _, k256 := range []bool{false, true} {
		a := w.account(t, plcName(), k256, records(120))
		for _, rkey := range []string{"repo-000", "repo-057", "repo-119"} {
			r, err := p.Record(t.Context(), a.did, declaration, rkey)
			require.NoError(t, err)
			require.Contains(t, string(r.CBOR), declaration)
			c, err := dagCBOR.Sum(r.CBOR)
			require.NoError(t, err)
			require.Equal(t, c.String(), r.CID)
			require.NotEmpty(t, r.Rev)
		}
		for _, rkey := range []string{"absent", "repo-0", "repo-1199", "zzz", "a"} {
			_, err := p.Record(t.Context(), a.did, declaration, rkey)
			require.ErrorIs(t, err, ErrAbsent, rkey)
			require.False(t, Temporary(err))
		}
		r, err := p.RecordAt(t.Context(), "http://knot.test", a.did, declaration, "repo-001")
		require.NoError(t, err)
		require.Equal(t, "repo-001", r.Rkey)
	}
	empty := w.account(t, plcName(), false, map[string]map[string]any{})
	_, err := p.Record(t.Context(), empty.did, declaration, "self")
	require.ErrorIs(t, err, ErrAbsent, "an empty repo proves absence too")
}

// TestT02Forgeries serves every kind of false proof: none may pass, none may count as absence.
func TestT02Forgeries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rev := syntax.NewTIDFromTime(time.Now(), 0).String()
	other := w.account(t, plcName(), false, records(5))
	cases := map[string]struct {
		want  error
		forge func(t *testing.T, a *account) *signedRepo
	}{
		"signed by another key": {ErrSignature, func(t *testing.T, a *account) *signedRepo {
			return newRepo(t, a.did, newKey(t, false), records(5), "")
		}},
		"another DID's repo": {ErrProof, func(*testing.T, *account) *signedRepo {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.repos[other.did]
		}},
		"another DID's tree, commit names us": {ErrSignature, func(t *testing.T, a *account) *signedRepo {
			return newRepo(t, a.did, other.key, records(5), "")
		}},
		"high-S signature": {ErrSignature, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			var c repo.Commit
			require.NoError(t, c.UnmarshalCBOR(bytes.NewReader(r.blocks[r.root])))
			s := new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(c.Sig[32:]))
			s.FillBytes(c.Sig[32:])
			r.setCommit(t, c)
			return r
		}},
		"no signature": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			var c repo.Commit
			require.NoError(t, c.UnmarshalCBOR(bytes.NewReader(r.blocks[r.root])))
			c.Sig = nil
			r.setCommit(t, c)
			return r
		}},
		"signature over another revision": {ErrSignature, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			var c repo.Commit
			require.NoError(t, c.UnmarshalCBOR(bytes.NewReader(r.blocks[r.root])))
			c.Rev = rev
			r.setCommit(t, c)
			return r
		}},
		"revision from the future": {ErrFutureRev, func(t *testing.T, a *account) *signedRepo {
			return newRepo(t, a.did, a.key, records(5), syntax.NewTIDFromTime(time.Now().Add(6*time.Minute), 0).String())
		}},
		"truncated CAR": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.mangle = func(b []byte) []byte { return b[:len(b)-7] }
			return r
		}},
		"empty body": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			return &signedRepo{mangle: func([]byte) []byte { return nil }, root: newRepo(t, a.did, a.key, nil, "").root}
		}},
		"tampered byte": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.mangle = func(b []byte) []byte {
				return bytes.Replace(b, []byte("did:web:repo-1."), []byte("did:web:repo-9."), 1)
			}
			return r
		}},
		"record block left out": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(1), "")
			for c, b := range r.blocks {
				if bytes.Contains(b, []byte("$type")) {
					delete(r.blocks, c)
				}
			}
			return r
		}},
		"tree left out": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.blocks = map[cid.Cid][]byte{r.root: r.blocks[r.root]}
			return r
		}},
		"wrong tree": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.sign(t, a.did, block(t, r.blocks, []byte{0xa0}), rev, a.key)
			return r
		}},
		"tree is the record": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(1), "")
			for c, b := range r.blocks {
				if bytes.Contains(b, []byte("$type")) {
					r.sign(t, a.did, c, rev, a.key)
				}
			}
			return r
		}},
		"body over the limit": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.mangle = func([]byte) []byte { return make([]byte, maxCAR+1) }
			return r
		}},
		"a million tiny blocks": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.mangle = func(b []byte) []byte { return append(b, bytes.Repeat([]byte{1, 0}, 400_000)...) }
			return r
		}},
		"section of 30 MiB announced": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			r.mangle = func(b []byte) []byte { return append(b, 0x80, 0x80, 0x80, 0x0f, 1) }
			return r
		}},
		"block named with another hash": {ErrProof, func(t *testing.T, a *account) *signedRepo {
			r := newRepo(t, a.did, a.key, records(5), "")
			c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.IDENTITY).Sum([]byte{0xa0})
			require.NoError(t, err)
			r.blocks[c] = []byte{0xa0}
			return r
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &account{did: plcName(), key: newKey(t, false)}
			w.put(a.did, docFor(t, a.did, a.key))
			w.setRepo(a.did, c.forge(t, a))
			_, err := w.prover().Record(t.Context(), a.did, declaration, "repo-000")
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, ErrAbsent)
			require.False(t, Temporary(err))
		})
	}
}

// TestT02HostileTrees builds trees that are signed by their owner and malformed.
func TestT02HostileTrees(t *testing.T) {
	t.Parallel()
	val := cid.NewCidV1(cid.DagCBOR, mustHash(t, "v"))
	key := declaration + "/repo-000"
	h := mst.HeightForKey([]byte(key))
	entry := func(p int64, k string, right *cid.Cid) mst.EntryData {
		return mst.EntryData{PrefixLen: p, KeySuffix: []byte(k), Value: val, Right: right}
	}
	// sameHeight is a key of the height of key that sorts after it, prefixed so.
	after := func(prefix string, height int) string {
		for i := 0; ; i++ {
			if k := fmt.Sprintf("%s%d", prefix, i); mst.HeightForKey([]byte(k)) == height {
				return k
			}
		}
	}
	trees := map[string]mst.NodeData{
		"prefix beyond the key before": {Entries: []mst.EntryData{entry(99, key, nil)}},
		"negative prefix":              {Entries: []mst.EntryData{entry(-1, key, nil)}},
		"no key":                       {Entries: []mst.EntryData{entry(0, "", nil)}},
		"key too long":                 {Entries: []mst.EntryData{entry(0, string(make([]byte, 1025)), nil)}},
		"keys out of order":            {Entries: []mst.EntryData{entry(0, after("zzz", h), nil), entry(0, after("aaa", h), nil)}},
		"key twice":                    {Entries: []mst.EntryData{entry(0, key, nil), entry(int64(len(key)), "", nil)}},
		"prefix not the longest":       {Entries: []mst.EntryData{entry(0, after("zz1", h), nil), entry(0, after("zz2", h), nil)}},
		"levels mixed":                 {Entries: []mst.EntryData{entry(0, after("zz", 0), nil), entry(0, after("zzz", 1), nil)}},
		"only a link":                  {Left: &val},
		"link below level 0":           {Entries: []mst.EntryData{entry(0, after("zz", 0), &val)}},
		"link to a block not sent":     {Left: &val, Entries: []mst.EntryData{entry(0, after("zz", h+1), nil)}},
	}
	for name, d := range trees {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := map[cid.Cid][]byte{}
			b, _, err := d.Bytes()
			require.NoError(t, err)
			_, err = findInTree(source(m), block(t, m, b), []byte(key))
			require.ErrorIs(t, err, ErrProof)
		})
	}
	t.Run("links that double at each level", func(t *testing.T) {
		t.Parallel()
		// Each node links twice to the next: a loader that follows all links visits 2^20 nodes.
		m := map[cid.Cid][]byte{}
		at := val
		for level := 1; level <= 20; level++ {
			b, _, err := (&mst.NodeData{Left: &at, Entries: []mst.EntryData{}}).Bytes()
			require.NoError(t, err)
			at = block(t, m, b)
		}
		top := after("zz", 3)
		b, _, err := (&mst.NodeData{Left: &at, Entries: []mst.EntryData{entry(0, top, &at)}}).Bytes()
		require.NoError(t, err)
		_, err = findInTree(source(m), block(t, m, b), []byte(key))
		require.ErrorIs(t, err, ErrProof)
	})
	t.Run("child outside its bounds", func(t *testing.T) {
		t.Parallel()
		m := map[cid.Cid][]byte{}
		low, top := after("zzz", h), after("zz0", h+1)
		b, _, err := (&mst.NodeData{Entries: []mst.EntryData{entry(0, low, nil)}}).Bytes()
		require.NoError(t, err)
		child := block(t, m, b)
		b, _, err = (&mst.NodeData{Left: &child, Entries: []mst.EntryData{entry(0, top, nil)}}).Bytes()
		require.NoError(t, err)
		_, err = findInTree(source(m), block(t, m, b), []byte(key))
		require.ErrorIs(t, err, ErrProof)
	})
}

// TestTreeAgainstModel compares the walk with indigo's own tree and shows that the blocks on the path are
// enough, and each of them needed.
func TestTreeAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{1,6}`), 0, 30, rapid.ID).Draw(rt, "names")
		tree := mst.NewEmptyTree()
		blocks := map[cid.Cid][]byte{}
		for i, n := range names {
			h, err := multihash.Sum([]byte{byte(i)}, multihash.SHA2_256, -1)
			require.NoError(rt, err)
			_, err = tree.Insert([]byte("a.b.c/"+n), cid.NewCidV1(cid.DagCBOR, h))
			require.NoError(rt, err)
		}
		root, err := tree.WriteDiffBlocks(context.Background(), sink{m: blocks})
		require.NoError(rt, err)
		for _, n := range append(names, rapid.SliceOfN(rapid.StringMatching(`[a-z0-9]{1,7}`), 1, 6).Draw(rt, "others")...) {
			key := []byte("a.b.c/" + n)
			want, err := tree.Get(key)
			require.NoError(rt, err)
			got, err := findInTree(source(blocks), *root, key)
			if want == nil {
				require.ErrorIs(rt, err, ErrAbsent)
			} else {
				require.NoError(rt, err)
				require.Equal(rt, *want, got)
			}
			var path []cid.Cid
			for c, b := range blocks {
				delete(blocks, c)
				if _, err := findInTree(source(blocks), *root, key); err != nil && !errors.Is(err, ErrAbsent) {
					require.ErrorIs(rt, err, ErrProof)
					path = append(path, c)
				}
				blocks[c] = b
			}
			only := map[cid.Cid][]byte{}
			for _, c := range path {
				only[c] = blocks[c]
			}
			again, err2 := findInTree(source(only), *root, key)
			require.Equal(rt, got, again)
			require.Equal(rt, err == nil, err2 == nil)
			if err2 != nil {
				require.ErrorIs(rt, err2, ErrAbsent)
			}
		}
	})
}

func BenchmarkProof(b *testing.B) {
	r := newRepo(b, plcName(), newKey(b, false), records(30), "")
	raw := r.proof("")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		p, err := readCAR(context.Background(), raw)
		require.NoError(b, err)
		_, err = findInTree(p.block, p.commit.Data, []byte(declaration+"/repo-003"))
		require.NoError(b, err)
	}
}

func mustHash(t testing.TB, s string) multihash.Multihash {
	t.Helper()
	h, err := multihash.Sum([]byte(s), multihash.SHA2_256, -1)
	require.NoError(t, err)
	return h
}

func TestT02KeyRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), false, records(3))
	p := w.prover()
	_, err := p.Record(t.Context(), a.did, declaration, "repo-001")
	require.NoError(t, err)

	fresh := newKey(t, true)
	w.put(a.did, docFor(t, a.did, fresh))
	w.setRepo(a.did, newRepo(t, a.did, fresh, records(3), ""))
	_, err = p.Record(t.Context(), a.did, declaration, "repo-001")
	require.NoError(t, err, "the document is asked for again when the signature fails")

	before := w.requests("plc.test/" + a.did)
	w.setRepo(a.did, newRepo(t, a.did, newKey(t, false), records(3), ""))
	for range 20 {
		_, err = p.Record(t.Context(), a.did, declaration, "repo-001")
		require.ErrorIs(t, err, ErrSignature)
	}
	require.Equal(t, before, w.requests("plc.test/"+a.did), "at most one purge a minute")
}

func TestT02HostRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), false, nil)
	p := w.prover()
	_, err := p.Record(t.Context(), a.did, declaration, "self")
	require.ErrorIs(t, err, ErrUnproven, "a denial without proof is not absence")
	require.False(t, Temporary(err))

	for code, want := range map[int]error{500: ErrUnreachable, 429: ErrUnreachable, 302: ErrBadDocument, 403: ErrUnproven, 501: ErrUnproven} {
		p := w.prover() // a host that was answered with 429 is left alone
		w.mu.Lock()
		w.other["odd.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://pds.test/")
			rw.WriteHeader(code)
		})
		w.mu.Unlock()
		_, err = p.RecordAt(t.Context(), "http://odd.test", a.did, declaration, "self")
		require.ErrorIs(t, err, want, code)
		require.Equal(t, want == ErrUnreachable, Temporary(err), code)
	}
	for _, host := range []string{"ftp://pds.test", "http://pds.test/path", "http://u:p@pds.test", "pds.test", "http://", "http://169.254.169.254"} {
		_, err = p.RecordAt(t.Context(), host, a.did, declaration, "self")
		require.ErrorIs(t, err, ErrBadDocument, host)
		require.NotContains(t, err.Error(), "u:p")
	}
	for _, bad := range [][2]string{{"nope", "self"}, {declaration, ""}, {declaration, ".."}, {declaration, "a/b"}, {"", ""}} {
		_, err = p.Record(t.Context(), a.did, bad[0], bad[1])
		require.ErrorIs(t, err, ErrProof)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Record(ctx, a.did, declaration, "self")
	require.True(t, Temporary(err))
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), false, records(8))
	p := w.prover()
	got, err := p.List(t.Context(), a.did, "", declaration, 100)
	require.NoError(t, err)
	require.Len(t, got, 8)
	require.Equal(t, "repo-000", got[0].Rkey)
	require.Equal(t, "repo-007", got[7].Rkey)
	got, err = p.List(t.Context(), a.did, "http://knot.test", declaration, 4)
	require.NoError(t, err)
	require.Len(t, got, 4)
	got, err = p.List(t.Context(), a.did, "", "org.tangled.repo.manifest", 4)
	require.NoError(t, err)
	require.Empty(t, got)

	// A host that names a record which the tree does not have, and one that turns pages for ever.
	r := newRepo(t, a.did, a.key, records(2), "")
	r.paths = append(r.paths, declaration+"/zzz")
	w.setRepo(a.did, r)
	got, err = p.List(t.Context(), a.did, "", declaration, 100)
	require.NoError(t, err)
	require.Len(t, got, 2)
	pages := 0
	w.mu.Lock()
	w.other["odd.test"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		pages++
		_, _ = fmt.Fprintf(rw, `{"cursor":"c%d","records":[{"uri":"at://%s/%s/x"}]}`, pages, r.URL.Query().Get("repo"), declaration)
	})
	w.mu.Unlock()
	_, err = p.List(t.Context(), a.did, "http://odd.test", declaration, 100)
	require.ErrorIs(t, err, ErrProof, "the page is no CAR")
	require.LessOrEqual(t, pages, 4)
}

func FuzzProof(f *testing.F) {
	did := plcName()
	key := newKey(f, false)
	r := newRepo(f, did, key, records(30), "")
	f.Add(r.proof(""))
	f.Add(newRepo(f, did, key, records(1), "").proof(""))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := readCAR(context.Background(), b)
		if err != nil {
			return
		}
		_, _ = findInTree(p.block, p.commit.Data, []byte(declaration+"/repo-003"))
	})
}

func FuzzTree(f *testing.F) {
	r := newRepo(f, plcName(), newKey(f, false), records(60), "")
	for _, b := range r.blocks {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := map[cid.Cid][]byte{}
		root := block(t, m, b)
		_, err := findInTree(source(m), root, []byte(declaration+"/repo-003"))
		_ = err // any answer will do, as long as it comes
	})
}

func source(m map[cid.Cid][]byte) blockFunc {
	return func(c cid.Cid) ([]byte, error) { return m[c], nil }
}
