package devnet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/jetstream"
	"spindle/internal/clock"
)

var clk clock.Real

// dial subscribes with the query.
func dial(t *testing.T, n *devnet.Net, q url.Values) *websocket.Conn {
	t.Helper()
	before := len(n.Jetstream().Connects())
	c := dialURL(t, n.JetstreamURL()+"?"+q.Encode())
	eventually(t, func() bool { return len(n.Jetstream().Connects()) > before }, "subscribed")
	return c
}

func dialURL(t *testing.T, u string) *websocket.Conn {
	t.Helper()
	c, res, err := websocket.DefaultDialer.DialContext(t.Context(), u, nil)
	require.NoError(t, err)
	_ = res.Body.Close()
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func next(t *testing.T, c *websocket.Conn) jetstream.Event {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	var e jetstream.Event
	require.NoError(t, c.ReadJSON(&e))
	return e
}

// rkeys reads count events and returns their record keys.
func rkeys(t *testing.T, c *websocket.Conn, count int) []string {
	t.Helper()
	var out []string
	for range count {
		e := next(t, c)
		require.NotNil(t, e.Commit)
		out = append(out, e.Commit.Rkey)
	}
	return out
}

const member = "sh.tangled.spindle.member"

// write puts records with these keys.
func write(t *testing.T, a *devnet.Account, keys ...string) {
	t.Helper()
	for _, k := range keys {
		_, _, err := a.Put(member, k, map[string]any{"key": k}, "")
		require.NoError(t, err)
	}
}

func TestJetstreamReplayAndLive(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice := account(t, n, "alice.test")
	write(t, alice, "a", "b", "c")
	log := n.Jetstream().Events()
	require.Len(t, log, 5) // identity, account, three commits
	at := func(i int) string { return fmt.Sprint(log[i].TimeUS) }

	c := dial(t, n, url.Values{"cursor": {at(3)}})
	assert.Equal(t, []string{"b", "c"}, rkeys(t, c, 2), "the cursor is inclusive")
	write(t, alice, "d")
	e := next(t, c)
	assert.Equal(t, "d", e.Commit.Rkey)
	assert.Equal(t, "create", e.Commit.Operation)
	assert.Equal(t, alice.Head().Rev, e.Commit.Rev)
	assert.JSONEq(t, `{"$type":"sh.tangled.spindle.member","key":"d"}`, string(e.Commit.Record))
	rec, err := alice.Get(member, "d")
	require.NoError(t, err)
	assert.Equal(t, rec.CID.String(), e.Commit.CID)
	write(t, alice, "d")
	assert.Equal(t, "update", next(t, c).Commit.Operation)
	_, err = alice.Delete(member, "d")
	require.NoError(t, err)
	e = next(t, c)
	assert.Equal(t, "delete", e.Commit.Operation)
	assert.Empty(t, e.Commit.Record)
	assert.Empty(t, e.Commit.CID)
	require.NoError(t, alice.SetStatus("deactivated"))
	e = next(t, c)
	assert.Equal(t, "account", e.Kind)
	assert.Equal(t, "deactivated", e.Account.Status)
	require.NoError(t, alice.SetStatus(""))
	_, err = alice.RotateKey(false)
	require.NoError(t, err)
	assert.True(t, next(t, c).Account.Active)
	assert.Equal(t, "alice.test", next(t, c).Identity.Handle)

	// Absent or in the future: live only (B-013).
	live := dial(t, n, url.Values{})
	future := dial(t, n, url.Values{"cursor": {fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())}})
	write(t, alice, "e")
	assert.Equal(t, []string{"e"}, rkeys(t, live, 1))
	assert.Equal(t, []string{"e"}, rkeys(t, future, 1))
}

func TestJetstreamFilters(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice, bob := account(t, n, "alice.test"), account(t, n, "bob.test")
	c := dial(t, n, url.Values{
		"wantedCollections": {"org.tangled.*", "sh.tangled.repo"}, "wantedDids": {alice.DID.String()}, "requireHello": {"true"},
	})
	require.NoError(t, c.WriteJSON(map[string]any{"type": "something", "payload": 1}))
	write(t, alice, "no")
	require.NoError(t, c.WriteJSON(map[string]any{"type": "options_update", "payload": map[string]any{
		"wantedCollections": []string{member}, "wantedDids": []string{bob.DID.String()},
	}}))
	write(t, bob, "yes")
	assert.Equal(t, []string{"yes"}, rkeys(t, c, 1), "nothing came before the hello, which replaced the filter")
	require.NoError(t, bob.SetStatus("suspended"))
	assert.Equal(t, "account", next(t, c).Kind, "collections do not filter accounts")
	require.NoError(t, c.WriteJSON(map[string]any{"type": "options_update", "payload": map[string]any{"wantedDids": []string{"nobody"}}}))
	_, _, err := c.ReadMessage()
	require.Error(t, err, "an invalid update disconnects")

	prefix := dial(t, n, url.Values{"wantedCollections": {"sh.tangled.*"}})
	_, _, err = alice.Create("org.tangled.track.ticket", map[string]any{})
	require.NoError(t, err)
	write(t, alice, "x")
	assert.Equal(t, []string{"x"}, rkeys(t, prefix, 1))
	for _, q := range []string{"wantedCollections=a*", "wantedDids=x", "cursor=x"} {
		_, res, err := websocket.DefaultDialer.DialContext(t.Context(), n.JetstreamURL()+"?"+q, nil)
		require.Error(t, err, q)
		require.Equal(t, http.StatusBadRequest, res.StatusCode, q)
		_ = res.Body.Close()
	}
}

func TestJetstreamZstd(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	alice := account(t, n, "alice.test")
	c := dial(t, n, url.Values{"compress": {"true"}})
	write(t, alice, "a")
	kind, b, err := c.ReadMessage()
	require.NoError(t, err)
	assert.Equal(t, websocket.BinaryMessage, kind)
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	require.NoError(t, err)
	defer d.Close()
	text, err := d.DecodeAll(b, nil)
	require.NoError(t, err)
	var e jetstream.Event
	require.NoError(t, json.Unmarshal(text, &e))
	assert.Equal(t, "a", e.Commit.Rkey)
}

func TestJetstreamFaults(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	js := n.Jetstream()
	alice := account(t, n, "alice.test")
	c := dial(t, n, url.Values{})
	is := func(key string) func(jetstream.Event) bool {
		return func(e jetstream.Event) bool { return e.Commit != nil && e.Commit.Rkey == key }
	}
	js.SetFaults(jetstream.Faults{Drop: is("b"), Duplicate: is("c")})
	write(t, alice, "a", "b", "c", "d")
	assert.Equal(t, []string{"a", "c", "c", "d"}, rkeys(t, c, 4))

	js.SetFaults(jetstream.Faults{Silence: true})
	write(t, alice, "e", "f", "g", "h")
	pong := make(chan struct{}, 1)
	c.SetPongHandler(func(string) error { pong <- struct{}{}; return nil })
	require.NoError(t, c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)))
	got := make(chan []string, 1)
	go func() { got <- rkeys(t, c, 4) }()
	select {
	case <-pong:
	case <-got:
		t.Fatal("a silent stream sent events")
	}
	js.SetFaults(jetstream.Faults{Reorder: 3})
	assert.Equal(t, []string{"g", "f", "e", "h"}, <-got)

	js.SetFaults(jetstream.Faults{})
	js.Raw([]byte(`{"kind":"commit"}`))
	assert.Nil(t, next(t, c).Commit)
	_, err := js.Forge(alice.DID.String(), "create", member, "forged", map[string]any{})
	require.NoError(t, err)
	assert.Equal(t, []string{"forged"}, rkeys(t, c, 1))
	_, err = alice.Get(member, "forged")
	require.Error(t, err, "no repository has it")
	far := time.Now().Add(100 * time.Hour).UnixMicro()
	_, err = js.Append(jetstream.Event{DID: alice.DID.String(), TimeUS: far, Kind: "identity", Identity: &jetstream.Identity{DID: alice.DID.String()}})
	require.NoError(t, err)
	assert.Equal(t, far, next(t, c).TimeUS)

	js.SetFaults(jetstream.Faults{CutAfter: 2})
	c = dial(t, n, url.Values{"cursor": {"1"}})
	next(t, c)
	next(t, c)
	_, _, err = c.ReadMessage()
	require.Error(t, err)
	assert.False(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), "no close frame")

	js.SetFaults(jetstream.Faults{})
	c = dial(t, n, url.Values{})
	assert.Positive(t, js.Cut())
	_, _, err = c.ReadMessage()
	require.Error(t, err)
	connects := js.Connects()
	require.Len(t, connects, 3)
	assert.Equal(t, "cursor=1", connects[1].Query)

	// Retention (B-002) and a server that was set up anew (B-013).
	write(t, alice, "i")
	js.Forget(js.Events()[len(js.Events())-1].TimeUS)
	c = dial(t, n, url.Values{"cursor": {"1"}})
	assert.Equal(t, far, next(t, c).TimeUS, "the oldest that is left")
	assert.Equal(t, []string{"i"}, rkeys(t, c, 1))
	js.Renumber(-1000 * time.Hour)
	write(t, alice, "j")
	e := next(t, c)
	assert.Equal(t, "j", e.Commit.Rkey)
	assert.Less(t, e.TimeUS, time.Now().Add(-999*time.Hour).UnixMicro())
}

// The join of replay and live as it was seen: times out of order, then a cut (B-001).
func TestB001TimesOutOfOrder(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	js := n.Jetstream()
	for _, at := range []int64{100, 101, 105, 102, 103, 104, 106} {
		_, err := js.Append(jetstream.Event{DID: "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", TimeUS: at, Kind: "identity"})
		require.NoError(t, err)
	}
	js.SetFaults(jetstream.Faults{CutAfter: 3})
	c := dial(t, n, url.Values{"cursor": {"1"}})
	for _, want := range []int64{100, 101, 105} {
		assert.Equal(t, want, next(t, c).TimeUS)
	}
	js.SetFaults(jetstream.Faults{})
	c = dialURL(t, n.JetstreamURL()+"?cursor=102")
	for _, want := range []int64{105, 102, 103, 104, 106} {
		assert.Equal(t, want, next(t, c).TimeUS)
	}
}

func TestOlderEventStream(t *testing.T) {
	t.Parallel()
	n := open(t, devnet.Config{})
	r := repository(t, n, account(t, n, "alice.test"), devnet.RepoOptions{})
	start := time.Now().UnixNano()
	p := push(t, r, devnet.Change{})
	read := func(c *websocket.Conn) (rkey, nsid string, event map[string]any) {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		var f struct {
			Rkey, NSID string
			Event      map[string]any
		}
		require.NoError(t, c.ReadJSON(&f))
		return f.Rkey, f.NSID, f.Event
	}
	base := "ws" + n.KnotURL()[len("http"):] + "/events?cursor="
	c := dialURL(t, base+fmt.Sprint(start))
	rkey, nsid, e := read(c)
	assert.Len(t, rkey, 13)
	assert.Equal(t, "sh.tangled.git.refUpdate", nsid)
	assert.Equal(t, p.SHA, e["newSha"])
	assert.Equal(t, r.Owner.DID.String(), e["repoDid"])
	assert.Equal(t, "site", e["repoName"])
	q := push(t, r, devnet.Change{})
	_, _, e = read(c)
	assert.Equal(t, q.SHA, e["newSha"])
	n.Knot().ForgeEvent("sh.tangled.pipeline", map[string]any{"forged": true})
	_, nsid, _ = read(c)
	assert.Equal(t, "sh.tangled.pipeline", nsid)
	n.Knot().Server.Cut()
	_, _, err := c.ReadMessage()
	require.Error(t, err)
}
