package identity

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"
	carutil "github.com/ipld/go-car/util"
	"github.com/stretchr/testify/require"
)

const wanted = "org.tangled.track.ticket"

// many makes n records of the wanted collection and as many of another.
func many(n int) map[string]map[string]any {
	out := map[string]map[string]any{}
	for i := range n {
		out[fmt.Sprintf("%s/%06d", wanted, i)] = map[string]any{"$type": wanted, "n": int64(i)}
		out[fmt.Sprintf("app.bsky.feed.post/%06d", i)] = map[string]any{"n": int64(i), "text": strings.Repeat("x", 300)}
	}
	return out
}

func keysOf(t *testing.T, r *Repo, collections ...string) []string {
	t.Helper()
	var out []string
	require.NoError(t, r.Records(collections, func(p Proven) error {
		require.Equal(t, r.Rev(), p.Rev)
		c, err := dagCBOR.Sum(p.CBOR)
		require.NoError(t, err)
		require.Equal(t, c.String(), p.CID)
		out = append(out, p.Collection+"/"+p.Rkey)
		return nil
	}))
	return out
}

func TestRepoYieldsWhatWasSigned(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 20, 3000} { // the last one does not fit into memory
		w := newWorld(t)
		a := w.account(t, plcName(), n%2 == 0, many(n))
		r, err := w.prover().Repo(t.Context(), a.did, "")
		require.NoError(t, err)
		keys := keysOf(t, r, wanted)
		require.Len(t, keys, n)
		require.True(t, slices.IsSorted(keys))
		require.Equal(t, n > 1000, r.blocks.file != nil)
		if n > 0 {
			p, err := r.Record(wanted, "000000")
			require.NoError(t, err)
			require.Equal(t, a.did, p.DID)
		}
		_, err = r.Record(wanted, "nowhere")
		var absence *Absence
		require.ErrorAs(t, err, &absence)
		require.ErrorIs(t, err, ErrAbsent)
		require.Equal(t, r.Rev(), absence.Rev)
		require.NoError(t, r.Close())
		rev, err := w.prover().LatestRev(t.Context(), a.did, "")
		require.NoError(t, err)
		require.Equal(t, r.Rev(), rev)
	}
}

// TestHeldProofsNeedNoHost asks a prover for records of a repo that travels with the context.
func TestHeldProofsNeedNoHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), true, many(3))
	p := w.prover()
	r, err := p.Repo(t.Context(), a.did, "")
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	ctx := WithRepo(t.Context(), r)
	got, err := p.Record(ctx, a.did, wanted, "000001")
	require.NoError(t, err)
	require.Equal(t, r.Rev(), got.Rev)
	_, err = p.Record(ctx, a.did, wanted, "gone")
	require.ErrorIs(t, err, ErrAbsent)
	require.Zero(t, w.requests("pds.test/xrpc/com.atproto.sync.getRecord"))
	_, err = p.Record(WithProofs(t.Context(), []Proven{got}), a.did, wanted, "000001")
	require.NoError(t, err)
	require.Zero(t, w.requests("pds.test/xrpc/com.atproto.sync.getRecord"))
	_, err = p.Record(WithProofs(t.Context(), []Proven{got}), a.did, wanted, "000002")
	require.NoError(t, err)
	require.Equal(t, 1, w.requests("pds.test/xrpc/com.atproto.sync.getRecord"))
	other := w.account(t, plcName(), true, many(1))
	_, err = p.Record(ctx, other.did, wanted, "000000")
	require.NoError(t, err, "a repo says nothing about another DID")
}

// TestT02WholeReposAreVerified serves repos in which one thing is wrong.
func TestT02WholeReposAreVerified(t *testing.T) {
	t.Parallel()
	records := many(50)
	cases := map[string]struct {
		bend func(t *testing.T, a *account, r *signedRepo)
		want error
	}{
		"another's key":  {func(t *testing.T, a *account, r *signedRepo) { *r = *newRepo(t, a.did, newKey(t, true), records, "") }, ErrSignature},
		"another's repo": {func(t *testing.T, a *account, r *signedRepo) { *r = *newRepo(t, plcName(), a.key, records, "") }, ErrProof},
		"from the future": {func(t *testing.T, a *account, r *signedRepo) {
			*r = *newRepo(t, a.did, a.key, records, "3zzzzzzzzzzzz")
		}, ErrFutureRev},
		"cut off": {func(_ *testing.T, _ *account, r *signedRepo) {
			r.mangle = func(b []byte) []byte { return b[:len(b)-7] }
		}, ErrProof},
		"one bit": {func(_ *testing.T, _ *account, r *signedRepo) {
			r.mangle = func(b []byte) []byte { b[len(b)-3] ^= 1; return b }
		}, ErrProof},
		"no CAR": {func(_ *testing.T, _ *account, r *signedRepo) {
			r.mangle = func([]byte) []byte { return []byte("<html>") }
		}, ErrProof},
		"nothing":      {func(_ *testing.T, _ *account, r *signedRepo) { r.mangle = func([]byte) []byte { return nil } }, ErrProof},
		"header alone": {func(_ *testing.T, _ *account, r *signedRepo) { r.blocks = nil }, ErrProof},
		"commit of another form": {func(t *testing.T, a *account, r *signedRepo) {
			c := repo.Commit{DID: a.did, Version: 2, Data: r.root, Rev: r.rev}
			require.NoError(t, c.Sign(a.key))
			r.setCommit(t, c)
		}, ErrProof},
		"a node is missing": {func(t *testing.T, _ *account, r *signedRepo) {
			for c, b := range r.blocks {
				if d, err := mst.NodeDataFromCBOR(bytes.NewReader(b)); err == nil && len(d.Entries) > 0 && d.Left == nil {
					delete(r.blocks, c)
					return
				}
			}
			t.Fatal("no leaf found")
		}, ErrProof},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.account(t, plcName(), true, records)
			r := *newRepo(t, a.did, a.key, records, "")
			c.bend(t, a, &r)
			w.setRepo(a.did, &r)
			got, err := w.prover().Repo(t.Context(), a.did, "")
			require.ErrorIs(t, err, c.want)
			require.Nil(t, got)
			require.False(t, Temporary(err))
		})
	}
}

// TestRepoWithoutARecordsBlock names the record that is missing, and gives those before it.
func TestRepoWithoutARecordsBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), true, nil)
	r := newRepo(t, a.did, a.key, many(5), "")
	for c, b := range r.blocks {
		if bytes.Contains(b, []byte(wanted)) && !bytes.Contains(b, []byte("/")) && bytes.HasSuffix(b, []byte(wanted)) {
			delete(r.blocks, c)
		}
	}
	w.setRepo(a.did, r)
	got, err := w.prover().Repo(t.Context(), a.did, "")
	require.NoError(t, err)
	defer func() { require.NoError(t, got.Close()) }()
	require.ErrorIs(t, got.Records([]string{wanted}, func(Proven) error { return nil }), ErrProof)
	require.Len(t, keysOf(t, got, "app.bsky.feed.post"), 5, "blocks of other collections may be left out, not these")
}

// endless serves a CAR file of size bytes, made while it is sent.
func endless(root cid.Cid, size int64, length bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if length {
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		}
		_ = car.WriteHeader(&car.CarHeader{Roots: []cid.Cid{root}, Version: 1}, w)
		data := make([]byte, 100_000)
		for n := uint64(0); int64(n)*int64(len(data)) < size; n++ {
			binary.BigEndian.PutUint64(data, n)
			c, _ := dagCBOR.Sum(data)
			if carutil.LdWrite(w, c.Bytes(), data) != nil {
				return
			}
		}
	}
}

// TestLargeRepoIsRefusedAtItsLimit serves 100 MB: memory stays flat.
func TestLargeRepoIsRefusedAtItsLimit(t *testing.T) {
	for _, length := range []bool{true, false} {
		w := newWorld(t)
		a := w.account(t, plcName(), true, many(1))
		w.other["pds.test"] = endless(w.repos[a.did].root, 100<<20, length)
		dir := t.TempDir()
		p := NewProver(ProverConfig{Directory: w.directory(), Client: w.client, Dir: dir})
		held := heap(func() {
			_, err := p.Repo(t.Context(), a.did, "")
			require.ErrorIs(t, err, ErrTooBig)
		})
		t.Logf("live heap grew by at most %d KiB", held>>10)
		require.Less(t, held, int64(16<<20))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "no file is left behind")
	}
	t.Run("blocks", func(t *testing.T) {
		w := newWorld(t)
		a := w.account(t, plcName(), true, many(50))
		p := NewProver(ProverConfig{Directory: w.directory(), Client: w.client, Limits: RepoLimits{Blocks: 20}})
		_, err := p.Repo(t.Context(), a.did, "")
		require.ErrorIs(t, err, ErrTooBig)
		p = NewProver(ProverConfig{Directory: w.directory(), Client: w.client, Limits: RepoLimits{Record: 200}})
		_, err = p.Repo(t.Context(), a.did, "")
		require.ErrorIs(t, err, ErrTooBig)
	})
}

// TestLargeDocumentIsRefusedAtItsLimit serves a DID document of 10 MB.
func TestLargeDocumentIsRefusedAtItsLimit(t *testing.T) {
	w := newWorld(t)
	a := w.account(t, plcName(), true, many(1))
	var sent int64
	w.other["plc.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		n, _ := io.WriteString(rw, `{"id":"`+a.did+`","x":"`)
		sent += int64(n)
		line := []byte(strings.Repeat("y", 10_000))
		for range 1000 {
			n, err := rw.Write(line)
			sent += int64(n)
			if err != nil {
				return
			}
		}
	})
	p := w.prover()
	held := heap(func() {
		_, err := p.Repo(t.Context(), a.did, "")
		require.ErrorIs(t, err, ErrBadDocument)
	})
	t.Logf("live heap grew by at most %d KiB", held>>10)
	require.Less(t, held, int64(4<<20))
}

// heap is by how much the live heap grew while f ran, at its highest.
func heap(f func()) int64 {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var top uint64
		for {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			top = max(top, m.HeapAlloc)
			select {
			case <-stop:
				most <- int64(top) - int64(before.HeapAlloc)
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	return <-most
}

func TestHostWithoutTheMethod(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{501: `{"error":"MethodNotImplemented"}`, 404: "", 400: `{"error":"XRPCNotSupported"}`} {
		w := newWorld(t)
		a := w.account(t, plcName(), true, many(1))
		w.other["pds.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body))
		})
		_, err := w.prover().Repo(t.Context(), a.did, "")
		require.ErrorIs(t, err, ErrUnsupported)
		_, err = w.prover().LatestRev(t.Context(), a.did, "")
		require.ErrorIs(t, err, ErrUnsupported)
	}
}

func TestThrottledSaysHowLong(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		header, value string
		least, most   time.Duration
	}{
		"seconds": {"Retry-After", "7", 6 * time.Second, 7 * time.Second},
		"date":    {"Retry-After", now.Add(90 * time.Second).UTC().Format(http.TimeFormat), 80 * time.Second, 91 * time.Second},
		"atproto": {"RateLimit-Reset", strconv.FormatInt(now.Unix()+60, 10), 50 * time.Second, 61 * time.Second},
		"far":     {"Retry-After", "99999999", 59 * time.Minute, time.Hour},
	} {
		w := newWorld(t)
		a := w.account(t, plcName(), true, many(1))
		w.other["pds.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(c.header, c.value)
			rw.WriteHeader(http.StatusTooManyRequests)
		})
		_, err := w.prover().Repo(t.Context(), a.did, "")
		var slow *HostBusyError
		require.ErrorAs(t, err, &slow, name)
		require.True(t, Temporary(err))
		require.Equal(t, "http://pds.test", slow.Host)
		require.GreaterOrEqual(t, slow.Wait, c.least, name)
		require.LessOrEqual(t, slow.Wait, c.most, name)
	}
}

// TestEachReadsAllPages is for hosts without whole repos; a list that turns in circles is refused.
func TestEachReadsAllPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, plcName(), true, many(10))
	var got []string
	each := func() error {
		got = nil
		return w.prover().Each(t.Context(), a.did, "", []string{wanted, "no.such.thing"}, func(ps []Proven) error {
			for _, p := range ps {
				got = append(got, p.Rkey)
			}
			return nil
		})
	}
	require.NoError(t, each())
	require.Len(t, got, 10)
	real := w.repos[a.did]
	for name, cursor := range map[string]func(n int) string{
		"the same":    func(int) string { return "000002" },
		"in a circle": func(n int) string { return []string{"000002", "000005"}[n%2] },
		"too long":    func(int) string { return strings.Repeat("c", 600) },
	} {
		n := 0
		w.other["pds.test"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "listRecords") {
				_, _ = rw.Write(real.proof(""))
				return
			}
			page := real.list(a.did, wanted, r.URL.Query().Get("cursor"))
			page["cursor"] = cursor(n)
			n++
			_ = json.NewEncoder(rw).Encode(page)
		})
		require.ErrorIs(t, each(), ErrProof, name)
		require.Less(t, n, 6, name)
	}
}

func FuzzReadRepo(f *testing.F) {
	w := &world{docs: map[string][]byte{}}
	did := "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	key := newKey(f, true)
	b, err := json.Marshal(docFor(f, did, key))
	if err != nil {
		f.Fatal(err)
	}
	w.docs[did] = b
	r := newRepo(f, did, key, many(3), "")
	f.Add(r.proof(""))
	p := NewProver(ProverConfig{Limits: RepoLimits{Bytes: 1 << 20, Blocks: 1000}})
	f.Fuzz(func(t *testing.T, car []byte) {
		blocks, root, err := readSpool(bytes.NewReader(car), "", p.limits)
		if err != nil {
			return
		}
		got := &Repo{did: did, blocks: blocks, root: root}
		_ = got.Records([]string{wanted}, func(Proven) error { return nil })
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
