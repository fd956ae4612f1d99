package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/ipld/go-car"
	carutil "github.com/ipld/go-car/util"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/internal/netguard"
)

func TestMain(m *testing.M) {
	// The logger of the IPFS libraries that indigo uses starts this one at import and has no way to stop it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

// world is a small network on loopback: a PLC directory, did:web hosts and PDSes, all one HTTP server that
// tells them apart by host name. Real HTTP, real signatures, real trees.
type world struct {
	server *httptest.Server
	client *http.Client

	mu    sync.Mutex
	docs  map[string][]byte       // DID -> document
	repos map[string]*signedRepo  // DID -> repo
	seen  map[string]int          // host and path -> requests
	other map[string]http.Handler // host -> what answers in its place
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{docs: map[string][]byte{}, repos: map[string]*signedRepo{}, seen: map[string]int{}, other: map[string]http.Handler{}}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	addr := w.server.Listener.Addr().String()
	hosts := map[string]string{}
	for _, h := range []string{"plc.test", "pds.test", "knot.test", "spindle.test", "odd.test", "wren.test"} {
		hosts[h] = addr
	}
	w.client = netguard.New(netguard.Config{Dev: true, Hosts: hosts}).HTTPClient(netguard.ClientOptions{})
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func (w *world) directory(mod ...func(*DirectoryConfig)) *Directory {
	c := DirectoryConfig{PLCURL: "http://plc.test", Client: w.client, Dev: true}
	for _, m := range mod {
		m(&c)
	}
	return NewDirectory(c)
}

func (w *world) prover() *Prover {
	return NewProver(ProverConfig{Directory: w.directory(), Client: w.client})
}

func (w *world) requests(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[key]
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	host := r.Host
	w.mu.Lock()
	w.seen[host+r.URL.Path]++
	h := w.other[host]
	doc := w.docs[strings.TrimPrefix(r.URL.Path, "/")]
	if r.URL.Path == "/.well-known/did.json" {
		doc = w.docs["did:web:"+host]
	}
	q := r.URL.Query()
	did := q.Get("did") + q.Get("repo")
	rp := w.repos[did]
	w.mu.Unlock()
	switch {
	case h != nil:
		h.ServeHTTP(rw, r)
	case doc != nil:
		_, _ = rw.Write(doc)
	case rp != nil && r.URL.Path == "/xrpc/com.atproto.sync.getRecord":
		_, _ = rw.Write(rp.proof(q.Get("collection") + "/" + q.Get("rkey")))
	case rp != nil && r.URL.Path == "/xrpc/com.atproto.sync.getRepo":
		_, _ = rw.Write(rp.proof(""))
	case rp != nil && r.URL.Path == "/xrpc/com.atproto.sync.getLatestCommit":
		_ = json.NewEncoder(rw).Encode(map[string]string{"cid": rp.root.String(), "rev": rp.rev})
	case rp != nil && r.URL.Path == "/xrpc/com.atproto.repo.listRecords":
		_ = json.NewEncoder(rw).Encode(rp.list(did, q.Get("collection"), q.Get("cursor")))
	case strings.HasPrefix(r.URL.Path, "/xrpc/"):
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = rw.Write([]byte(`{"error":"RepoNotFound"}`))
	default:
		http.NotFound(rw, r)
	}
}

// account is a DID with its key. Its document is in the world.
type account struct {
	did string
	key atcrypto.PrivateKey
}

func (w *world) put(did string, doc any) {
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.docs[did] = b
}

func plcName() string {
	b := make([]byte, 15)
	_, _ = rand.Read(b)
	return "did:plc:" + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

func newKey(t testing.TB, k256 bool) atcrypto.PrivateKey {
	t.Helper()
	if k256 {
		k, err := atcrypto.GeneratePrivateKeyK256()
		require.NoError(t, err)
		return k
	}
	k, err := atcrypto.GeneratePrivateKeyP256()
	require.NoError(t, err)
	return k
}

func docFor(t testing.TB, did string, key atcrypto.PrivateKey) map[string]any {
	t.Helper()
	pub, err := key.PublicKey()
	require.NoError(t, err)
	return map[string]any{
		"id":                 did,
		"alsoKnownAs":        []string{"at://wren.test"},
		"verificationMethod": []any{map[string]any{"id": did + "#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": pub.Multibase()}},
		"service": []any{
			map[string]any{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "http://pds.test"},
			map[string]any{"id": "#tangled_knot", "type": "TangledKnot", "serviceEndpoint": "http://knot.test/"},
		},
	}
}

// account makes an account with a repo that holds records ("collection/rkey" -> record).
func (w *world) account(t testing.TB, did string, k256 bool, records map[string]map[string]any) *account {
	t.Helper()
	a := &account{did: did, key: newKey(t, k256)}
	w.put(did, docFor(t, did, a.key))
	if records != nil {
		r := newRepo(t, did, a.key, records, "")
		w.mu.Lock()
		w.repos[did] = r
		w.mu.Unlock()
	}
	return a
}

func (w *world) setRepo(did string, r *signedRepo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repos[did] = r
}

// signedRepo is a repo at one revision, in blocks.
type signedRepo struct {
	root   cid.Cid
	rev    string
	blocks map[cid.Cid][]byte
	paths  []string
	// mangle changes the CAR before it is sent.
	mangle func([]byte) []byte
}

// sink collects the blocks that the tree writes.
type sink struct {
	blockstore.Blockstore
	m map[cid.Cid][]byte
}

func (s sink) Put(_ context.Context, b blocks.Block) error {
	s.m[b.Cid()] = b.RawData()
	return nil
}

var dagCBOR = cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256)

func block(t testing.TB, m map[cid.Cid][]byte, b []byte) cid.Cid {
	t.Helper()
	c, err := dagCBOR.Sum(b)
	require.NoError(t, err)
	m[c] = b
	return c
}

func newRepo(t testing.TB, did string, key atcrypto.PrivateKey, records map[string]map[string]any, rev string) *signedRepo {
	t.Helper()
	r := &signedRepo{blocks: map[cid.Cid][]byte{}}
	tree := mst.NewEmptyTree()
	for path, rec := range records {
		b, err := atdata.MarshalCBOR(rec)
		require.NoError(t, err)
		_, err = tree.Insert([]byte(path), block(t, r.blocks, b))
		require.NoError(t, err)
		r.paths = append(r.paths, path)
	}
	slices.Sort(r.paths)
	data, err := tree.WriteDiffBlocks(t.Context(), sink{m: r.blocks})
	require.NoError(t, err)
	if rev == "" {
		rev = syntax.NewTIDFromTime(time.Now(), 1).String()
	}
	r.sign(t, did, *data, rev, key)
	return r
}

// sign makes the commit over data and sets it as the root.
func (r *signedRepo) sign(t testing.TB, did string, data cid.Cid, rev string, key atcrypto.PrivateKey) {
	t.Helper()
	c := repo.Commit{DID: did, Version: repo.ATPROTO_REPO_VERSION, Data: data, Rev: rev}
	require.NoError(t, c.Sign(key))
	r.setCommit(t, c)
}

func (r *signedRepo) setCommit(t testing.TB, c repo.Commit) {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, c.MarshalCBOR(&buf))
	r.root, r.rev = block(t, r.blocks, buf.Bytes()), c.Rev
}

// proof is the whole repo as CAR, which proves whatever path: more than a PDS sends, and allowed.
func (r *signedRepo) proof(string) []byte {
	b := carOf(r.root, r.blocks)
	if r.mangle != nil {
		return r.mangle(b)
	}
	return b
}

func carOf(root cid.Cid, m map[cid.Cid][]byte) []byte {
	var buf bytes.Buffer
	if err := car.WriteHeader(&car.CarHeader{Roots: []cid.Cid{root}, Version: 1}, &buf); err != nil {
		panic(err)
	}
	for c, b := range m {
		if err := carutil.LdWrite(&buf, c.Bytes(), b); err != nil {
			panic(err)
		}
	}
	return buf.Bytes()
}

// list answers three names a page.
func (r *signedRepo) list(did, collection, cursor string) map[string]any {
	out := map[string]any{}
	var recs []map[string]any
	for _, p := range r.paths {
		c, rkey, _ := strings.Cut(p, "/")
		if c != collection || rkey <= cursor {
			continue
		}
		recs = append(recs, map[string]any{"uri": "at://" + did + "/" + p, "cid": "bogus", "value": map[string]any{"lie": true}})
		if len(recs) == 3 {
			out["cursor"] = rkey
			break
		}
	}
	out["records"] = recs
	return out
}
