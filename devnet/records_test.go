package devnet_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/fault"
	"spindle/devnet/pds"
)

// client is an HTTP client that leaves no connection behind.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func get(t *testing.T, url string) (int, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	res, err := client(t).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// prove fetches a proof and checks it as indigo does: blocks, structure, signature and DID. The record is
// nil when its absence is proven.
func prove(t *testing.T, n *devnet.Net, did syntax.DID, collection, rkey string) ([]byte, *repo.Commit, error) {
	t.Helper()
	id, err := directory(t, n).LookupDID(t.Context(), did)
	require.NoError(t, err)
	status, car, err := get(t, id.PDSEndpoint()+"/xrpc/com.atproto.sync.getRecord?did="+did.String()+"&collection="+collection+"&rkey="+rkey)
	if err != nil {
		return nil, nil, err
	}
	require.Equal(t, http.StatusOK, status, string(car))
	commit, r, err := repo.LoadRepoFromCAR(t.Context(), bytes.NewReader(car))
	if err != nil {
		return nil, nil, err
	}
	key, err := id.PublicKey()
	require.NoError(t, err)
	if err := commit.VerifySignature(key); err != nil {
		return nil, commit, err
	}
	// The partial tree of a proof cannot be asked to verify as a whole; its root must be the commit's.
	root, err := r.MST.RootCID()
	require.NoError(t, err)
	assert.Equal(t, commit.Data.String(), root.String())
	rec, _, err := r.GetRecordBytes(t.Context(), syntax.NSID(collection), syntax.RecordKey(rkey))
	if err != nil {
		return nil, commit, err
	}
	return rec, commit, nil
}

func TestProofs(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice := account(t, n, "alice.test")
	const collection = "org.tangled.repo.declaration"
	for range 60 { // enough for a tree with several layers
		_, _, err := alice.Create(collection, map[string]any{"repo": alice.DID.String(), "createdAt": pds.Datetime(clk)})
		require.NoError(t, err)
	}
	all := alice.List(collection)
	require.Len(t, all, 60)
	for _, rec := range all {
		b, commit, err := prove(t, n, alice.DID, collection, rec.Rkey)
		require.NoError(t, err)
		assert.Equal(t, rec.Bytes, b)
		assert.Equal(t, alice.DID.String(), commit.DID)
		assert.Equal(t, alice.Head().Rev, commit.Rev)
	}
	for _, rkey := range []string{"3aaaaaaaaaaaa", all[30].Rkey + "a", "zzzzzzzzzzzzz"} {
		_, _, err := prove(t, n, alice.DID, collection, rkey)
		require.ErrorIs(t, err, repo.ErrNotFound, "absence is proven")
	}
	_, err := alice.Delete(collection, all[10].Rkey)
	require.NoError(t, err)
	_, commit, err := prove(t, n, alice.DID, collection, all[10].Rkey)
	require.ErrorIs(t, err, repo.ErrNotFound)
	require.NotNil(t, commit)

	status, car, err := get(t, n.PDSURL()+"/xrpc/com.atproto.sync.getRepo?did="+alice.DID.String())
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	c, r, err := repo.LoadRepoFromCAR(t.Context(), bytes.NewReader(car))
	require.NoError(t, err)
	require.NoError(t, r.MST.Verify())
	assert.Equal(t, alice.Head().Rev, c.Rev)
	commit, err = repo.VerifyCommitSignatureFromCar(t.Context(), directory(t, n), car)
	require.NoError(t, err)
	assert.Equal(t, alice.DID.String(), commit.DID)
}

// The proofs of a repository's own record repository come from its knot.
func TestManifestIsProvenByTheKnot(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice, bob := account(t, n, "alice.test"), account(t, n, "bob.test")
	r := repository(t, n, alice, devnet.RepoOptions{Spindle: "ci.test"})
	b, _, err := prove(t, n, r.DID, devnet.Manifest, "self")
	require.NoError(t, err)
	assert.Contains(t, string(b), alice.DID.String())
	require.NoError(t, r.SetSpindle("other.test"))
	b, _, err = prove(t, n, r.DID, devnet.Manifest, "self")
	require.NoError(t, err)
	assert.Contains(t, string(b), "other.test")
	require.NoError(t, r.AddCollaborator(bob))
	_, _, err = prove(t, n, r.DID, devnet.Collaborator, bob.DID.String())
	require.NoError(t, err)
	require.NoError(t, r.RemoveCollaborator(bob))
	_, _, err = prove(t, n, r.DID, devnet.Collaborator, bob.DID.String())
	require.ErrorIs(t, err, repo.ErrNotFound)
	_, err = r.RotateKey(false)
	require.NoError(t, err)
	_, _, err = prove(t, n, r.DID, devnet.Manifest, "self")
	require.NoError(t, err)
	publish, err := r.RotateKey(true)
	require.NoError(t, err)
	_, _, err = prove(t, n, r.DID, devnet.Manifest, "self")
	require.Error(t, err, "the directory does not know the new key yet")
	require.NoError(t, publish())
	_, _, err = prove(t, n, r.DID, devnet.Manifest, "self")
	require.NoError(t, err)
}

// Every way of tampering is caught by a careful reader (T02), and by nothing less.
func TestT02Tamper(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice := account(t, n, "alice.test")
	rec, _, err := alice.Create(devnet.Declaration, map[string]any{"repo": alice.DID.String(), "createdAt": pds.Datetime(clk)})
	require.NoError(t, err)
	try := func(mode pds.Tamper, rkey string) ([]byte, *repo.Commit, error) {
		alice.Tamper(mode)
		return prove(t, n, alice.DID, devnet.Declaration, rkey)
	}
	for _, mode := range []pds.Tamper{pds.BadSignature, pds.HighS, pds.CorruptBlock, pds.Truncated} {
		_, _, err := try(mode, rec.Rkey)
		require.Error(t, err, "mode %d", mode)
		require.NotErrorIs(t, err, repo.ErrNotFound, "mode %d", mode)
	}
	_, _, err = try(pds.ForgedTree, "3aaaaaaaaaaaa")
	require.Error(t, err, "the commit does not lead to the forged record")
	_, commit, err := try(pds.OtherDID, rec.Rkey)
	require.NoError(t, err)
	assert.NotEqual(t, alice.DID.String(), commit.DID)
	_, commit, err = try(pds.FutureRev, rec.Rkey)
	require.NoError(t, err)
	assert.Greater(t, syntax.TID(commit.Rev).Time(), clk.Now().Add(23*time.Hour))

	alice.Tamper(pds.Rollback)
	before := alice.Head().Rev
	_, err = alice.Delete(devnet.Declaration, rec.Rkey)
	require.NoError(t, err)
	b, commit, err := prove(t, n, alice.DID, devnet.Declaration, rec.Rkey)
	require.NoError(t, err, "the deleted record is shown")
	assert.Equal(t, rec.Bytes, b)
	assert.Equal(t, before, commit.Rev)
	_, _, err = try(pds.Honest, rec.Rkey)
	require.ErrorIs(t, err, repo.ErrNotFound)
}

func TestRecordsOverTheWire(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice, bob := account(t, n, "alice.test"), account(t, n, "bob.test")
	call := func(method, nsid, token, body string) (int, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), method, n.PDSURL()+"/xrpc/"+nsid, strings.NewReader(body))
		require.NoError(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := client(t).Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		var out map[string]any
		require.NoError(t, json.NewDecoder(res.Body).Decode(&out))
		return res.StatusCode, out
	}
	status, out := call("POST", "com.atproto.server.createSession", "", `{"identifier":"alice.test","password":"`+alice.Token+`"}`)
	require.Equal(t, http.StatusOK, status)
	token, ok := out["accessJwt"].(string)
	require.True(t, ok)
	status, _ = call("POST", "com.atproto.server.createSession", "", `{"identifier":"alice.test","password":"x"}`)
	assert.Equal(t, http.StatusUnauthorized, status)

	const c = "sh.tangled.spindle.member"
	body := `{"repo":"alice.test","collection":"` + c + `","record":{"subject":"` + bob.DID.String() + `","instance":"ci.test"}}`
	status, out = call("POST", "com.atproto.repo.createRecord", token, body)
	require.Equal(t, http.StatusOK, status, out)
	require.Len(t, alice.List(c), 1)
	rkey := alice.List(c)[0].Rkey
	assert.Equal(t, "at://"+alice.DID.String()+"/"+c+"/"+rkey, out["uri"])
	status, out = call("POST", "com.atproto.repo.createRecord", bob.Token, body)
	assert.Equal(t, http.StatusForbidden, status, out)
	status, out = call("POST", "com.atproto.repo.createRecord", token, `{"repo":"alice.test","collection":"`+c+`","record":[1]}`)
	assert.Equal(t, "InvalidRequest", out["error"], status)
	for _, rkey := range []string{"a", "b", "c"} {
		status, _ = call("POST", "com.atproto.repo.putRecord", token, `{"repo":"alice.test","collection":"`+c+`","rkey":"`+rkey+`","record":{}}`)
		require.Equal(t, http.StatusOK, status)
	}
	_, out = call("GET", "com.atproto.repo.listRecords?repo=alice.test&limit=2&collection="+c, "", "")
	assert.Len(t, out["records"], 2)
	assert.Equal(t, "b", out["cursor"])
	_, out = call("GET", "com.atproto.repo.listRecords?repo=alice.test&cursor=b&collection="+c, "", "")
	assert.Len(t, out["records"], 2)
	status, _ = call("POST", "com.atproto.repo.deleteRecord", token, `{"repo":"alice.test","collection":"`+c+`","rkey":"a"}`)
	assert.Equal(t, http.StatusOK, status)
	_, out = call("GET", "com.atproto.repo.getRecord?repo=alice.test&rkey=a&collection="+c, "", "")
	assert.Equal(t, "RecordNotFound", out["error"])

	_, out = call("GET", "com.atproto.server.getServiceAuth?aud=did:web:ci.test&lxm="+notifyNSID, token, "")
	service, ok := out["token"].(string)
	require.True(t, ok, out)
	v := auth.ServiceAuthValidator{Audience: "did:web:ci.test", Dir: directory(t, n)}
	lxm := syntax.NSID(notifyNSID)
	iss, err := v.Validate(t.Context(), service, &lxm)
	require.NoError(t, err)
	assert.Equal(t, alice.DID, iss)

	require.NoError(t, alice.SetStatus("takendown"))
	_, out = call("GET", "com.atproto.sync.getRecord?did="+alice.DID.String()+"&rkey=b&collection="+c, "", "")
	assert.Equal(t, "RepoTakendown", out["error"])
	_, out = call("GET", "com.atproto.sync.getRepoStatus?did="+alice.DID.String(), "", "")
	assert.Equal(t, false, out["active"])
	_, _, err = alice.Put(c, "z", map[string]any{}, "")
	require.ErrorIs(t, err, pds.ErrInactive)
	require.NoError(t, alice.SetStatus(""))
	_, out = call("GET", "com.atproto.sync.listRepos?limit=1", "", "")
	assert.Len(t, out["repos"], 1)
	_, out = call("GET", "com.atproto.sync.listRepos?cursor="+out["cursor"].(string), "", "")
	assert.Len(t, out["repos"], 1)
	assert.NotContains(t, out, "cursor")
}

func TestServerFaults(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice := account(t, n, "alice.test")
	url := n.PDSURL() + "/xrpc/com.atproto.sync.getRepo?did=" + alice.DID.String()
	gate := &n.PDS().Server.Gate

	gate.Set(fault.Rule{Path: "/xrpc/com.atproto.sync.", Status: http.StatusBadGateway, Skip: 1, Times: 1})
	for _, want := range []int{200, 502, 200} {
		status, _, err := get(t, url)
		require.NoError(t, err)
		assert.Equal(t, want, status)
	}
	gate.Set(fault.Rule{Cut: true, Times: 1})
	_, _, err := get(t, url)
	require.Error(t, err)
	gate.Set(fault.Rule{Truncate: 10, Times: 1})
	_, b, err := get(t, url)
	require.Error(t, err)
	assert.Len(t, b, 10)
	gate.Set(fault.Rule{Delay: 30 * time.Millisecond, Times: 1})
	start := time.Now()
	status, _, err := get(t, url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond)
	gate.Set(fault.Rule{Silence: true})
	done := make(chan error, 1)
	go func() {
		_, _, err := get(t, url)
		done <- err
	}()
	seen := len(gate.Requests(""))
	eventually(t, func() bool { return len(gate.Requests("")) >= max(seen, 7) }, "the silent request has come")
	n.PDS().Server.Cut()
	require.Error(t, <-done)
	gate.Clear()
	status, _, err = get(t, n.PLCURL()+"/did:plc:nobodynobodynobodynobod")
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, status)
	require.NoError(t, n.Directory().Tombstone(alice.DID))
	status, _, err = get(t, n.PLCURL()+"/"+alice.DID.String())
	require.NoError(t, err)
	assert.Equal(t, http.StatusGone, status)
}
