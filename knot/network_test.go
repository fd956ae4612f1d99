package knot

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/ipld/go-car"
	carutil "github.com/ipld/go-car/util"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"

	"spindle/identity"
	"spindle/internal/netguard"
)

// records is a network of DIDs with signed record repositories: a PLC directory and any number of hosts.
type records struct {
	t   testing.TB
	plc *httptest.Server

	mu   sync.Mutex
	docs map[string]map[string]any
}

func newRecords(t testing.TB) *records {
	n := &records{t: t, docs: map[string]map[string]any{}}
	n.plc = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		doc := n.docs[strings.TrimPrefix(r.URL.Path, "/")]
		n.mu.Unlock()
		if doc == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/did+ld+json")
		_ = json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(n.plc.Close)
	return n
}

// publish puts up a DID document with one service.
func (n *records) publish(did string, key atcrypto.PrivateKey, service, kind, endpoint string) {
	pub, err := key.PublicKey()
	require.NoError(n.t, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.docs[did] = map[string]any{
		"id":                 did,
		"verificationMethod": []any{map[string]any{"id": did + "#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": pub.Multibase()}},
		"service":            []any{map[string]any{"id": "#" + service, "type": kind, "serviceEndpoint": endpoint}},
	}
}

// recordHost serves the record repositories of the DIDs on it: a PDS, or a knot.
type recordHost struct {
	t    testing.TB
	srv  *httptest.Server
	mu   sync.Mutex
	cars map[string][]byte         // by DID
	recs map[string]map[string]any // by DID, then "collection/rkey"
}

func newRecordHost(t testing.TB) *recordHost {
	h := &recordHost{t: t, cars: map[string][]byte{}, recs: map[string]map[string]any{}}
	h.srv = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.srv.Close)
	return h
}

func (h *recordHost) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := r.URL.Query()
	switch r.URL.Path {
	case "/xrpc/com.atproto.sync.getRecord":
		b, ok := h.cars[q.Get("did")]
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"RepoNotFound"}`))
			return
		}
		_, _ = w.Write(b)
	case "/xrpc/com.atproto.repo.listRecords":
		out := []any{}
		for path := range h.recs[q.Get("repo")] {
			if strings.HasPrefix(path, q.Get("collection")+"/") {
				out = append(out, map[string]any{"uri": "at://" + q.Get("repo") + "/" + path})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"records": out})
	default:
		http.NotFound(w, r)
	}
}

// put signs recs as the whole repository of did.
func (h *recordHost) put(did string, key atcrypto.PrivateKey, recs map[string]any) {
	h.t.Helper()
	ctx := context.Background()
	//lint:ignore SA1019 the repositories of indigo are made of the block store of this package, not of its successor's
	bs := blockstore.NewBlockstore(datastore.NewMapDatastore())
	clk := syntax.NewTIDClock(1)
	r := repo.Repo{DID: syntax.DID(did), Clock: clk, RecordStore: bs, MST: mst.NewEmptyTree()}
	var blocks [][2][]byte
	add := func(b []byte) cid.Cid {
		c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(b)
		require.NoError(h.t, err)
		blocks = append(blocks, [2][]byte{c.Bytes(), b})
		return c
	}
	for path, rec := range recs {
		b, err := atdata.MarshalCBOR(rec.(map[string]any))
		require.NoError(h.t, err)
		_, err = r.MST.Insert([]byte(path), add(b))
		require.NoError(h.t, err)
	}
	_, err := r.MST.WriteDiffBlocks(ctx, bs)
	require.NoError(h.t, err)
	commit, err := r.Commit()
	require.NoError(h.t, err)
	require.NoError(h.t, commit.Sign(key))
	var buf bytes.Buffer
	require.NoError(h.t, commit.MarshalCBOR(&buf))
	root := add(buf.Bytes())
	keys, err := bs.AllKeysChan(ctx)
	require.NoError(h.t, err)
	for k := range keys {
		blk, err := bs.Get(ctx, k)
		require.NoError(h.t, err)
		add(blk.RawData())
	}
	var out bytes.Buffer
	require.NoError(h.t, car.WriteHeader(&car.CarHeader{Roots: []cid.Cid{root}, Version: 1}, &out))
	for _, b := range blocks {
		require.NoError(h.t, carutil.LdWrite(&out, b[0], b[1]))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cars[did], h.recs[did] = out.Bytes(), recs
}

func newKey(t testing.TB) atcrypto.PrivateKey {
	k, err := atcrypto.GeneratePrivateKeyP256()
	require.NoError(t, err)
	return k
}

// client is a client that asks this network.
func (n *records) client(t testing.TB) *Client {
	g := netguard.New(netguard.Config{Dev: true})
	d := identity.NewDirectory(identity.DirectoryConfig{PLCURL: n.plc.URL, Client: g.HTTPClient(netguard.ClientOptions{}), Dev: true})
	return newClient(t, func(c *Config) {
		c.Directory = d
		c.Prover = identity.NewProver(identity.ProverConfig{Directory: d, Client: g.HTTPClient(netguard.ClientOptions{})})
	})
}
