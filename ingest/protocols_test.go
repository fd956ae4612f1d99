package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/firehose"
	"spindle/devnet/jetstream"
	"spindle/internal/clock"
	"spindle/store"
)

// tongue is one of the protocols, as a host of the development network speaks it.
type tongue struct {
	name, source string
	url          func(*devnet.Net) string
	// tell has somebody who is in no directory commit a ticket under key; other tells of him what is no record.
	tell        func(t *testing.T, n *devnet.Net, key string)
	other       func(t *testing.T, n *devnet.Net)
	silence     func(n *devnet.Net)
	cutAfter    func(n *devnet.Net, messages int)
	cut         func(*devnet.Net) int
	subscribers func(*devnet.Net) int
	connects    func(*devnet.Net) []string
	// forget drops what was told so far.
	forget func(*devnet.Net)
	// anew has the host count from its beginning.
	anew func(*devnet.Net)
}

func (g tongue) host(t *testing.T, n *devnet.Net) string {
	u, err := url.Parse(g.url(n))
	require.NoError(t, err)
	return u.Host
}

// queries are what subscribers of a Jetstream asked for.
func queries(n *devnet.Net) (out []string) {
	for _, c := range n.Jetstream().Connects() {
		out = append(out, c.Query)
	}
	return out
}

// tongues are all of them.
func tongues() []tongue {
	v1 := tongue{
		name: protocolV1, source: jetstreamSource, url: (*devnet.Net).JetstreamURL,
		tell: func(t *testing.T, n *devnet.Net, key string) {
			_, err := n.Jetstream().Forge(nobody, "create", ticketNSID, key, map[string]any{})
			require.NoError(t, err)
		},
		other: func(t *testing.T, n *devnet.Net) {
			_, err := n.Jetstream().Append(jetstream.Event{DID: nobody, Kind: "identity", Identity: &jetstream.Identity{DID: nobody}})
			require.NoError(t, err)
		},
		silence:     func(n *devnet.Net) { n.Jetstream().SetFaults(jetstream.Faults{Silence: true}) },
		cutAfter:    func(n *devnet.Net, m int) { n.Jetstream().SetFaults(jetstream.Faults{CutAfter: m}) },
		cut:         func(n *devnet.Net) int { return n.Jetstream().Cut() },
		subscribers: func(n *devnet.Net) int { return n.Jetstream().Subscribers() },
		connects:    queries,
		forget:      func(n *devnet.Net) { n.Jetstream().Forget(time.Now().Add(time.Minute).UnixMicro()) },
		anew:        func(n *devnet.Net) { n.Jetstream().Renumber(-3 * time.Hour) },
	}
	v2 := v1
	v2.name, v2.url = protocolV2, (*devnet.Net).JetstreamV2URL
	fire := tongue{
		name: protocolRepos, source: firehoseSource, url: (*devnet.Net).FirehoseURL,
		tell: func(t *testing.T, n *devnet.Net, key string) {
			c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum([]byte(key))
			require.NoError(t, err)
			_, err = n.Relay().Commit(firehose.Commit{
				DID: nobody, Rev: "3mzzzzzzzzz2a", Commit: c, CID: c, Operation: "create", Path: ticketNSID + "/" + key, Blocks: []byte{1},
			})
			require.NoError(t, err)
		},
		other: func(t *testing.T, n *devnet.Net) {
			_, err := n.Relay().Identity(nobody, "")
			require.NoError(t, err)
		},
		silence:     func(n *devnet.Net) { n.Relay().SetFaults(firehose.Faults{Silence: true}) },
		cutAfter:    func(n *devnet.Net, m int) { n.Relay().SetFaults(firehose.Faults{CutAfter: m}) },
		cut:         func(n *devnet.Net) int { return n.Relay().Cut() },
		subscribers: func(n *devnet.Net) int { return n.Relay().Subscribers() },
		connects:    func(n *devnet.Net) []string { return n.Relay().Connects() },
		forget:      func(n *devnet.Net) { n.Relay().Forget(n.Relay().Last() + 1) },
		anew:        func(n *devnet.Net) { n.Relay().Renumber(0) },
	}
	return []tongue{v1, v2, fire}
}

// each runs a test in every tongue.
func each(t *testing.T, f func(t *testing.T, g tongue)) {
	t.Parallel()
	for _, g := range tongues() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			f(t, g)
		})
	}
}

// read follows g and proves nothing, until the returned function is called.
func (b *bench) read(g tongue) (halt func()) {
	b.t.Helper()
	before := len(g.connects(b.net))
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = b.Follow(ctx, g.url(b.net)) })
	halt = func() { cancel(); ended.Wait() }
	b.t.Cleanup(halt)
	until(b.t, func() bool { return len(g.connects(b.net)) > before && g.subscribers(b.net) > 0 }, "connected")
	return halt
}

// reached is the cursor of g; 0 if there is none.
func (b *bench) reached(g tongue) int64 {
	b.t.Helper()
	c, _, err := b.store.Cursor(context.Background(), g.source, g.host(b.t, b.net), g.name)
	require.NoError(b.t, err)
	return c.Value
}

// set makes v the cursor of g.
func (b *bench) set(g tongue, v int64) {
	b.t.Helper()
	_, err := b.store.Accept(context.Background(), store.Effects{Cursor: &store.Cursor{
		Source: g.source, Host: g.host(b.t, b.net), Protocol: g.name, Value: v, Reset: true,
	}})
	require.NoError(b.t, err)
}

// gaps are the reasons of the gaps that stand.
func (b *bench) gaps() (out []string) {
	b.t.Helper()
	gs, err := b.store.OpenGaps(context.Background())
	require.NoError(b.t, err)
	for _, g := range gs {
		out = append(out, g.Reason)
	}
	return out
}

// TestB001NothingIsLostAtTheJoin cuts the connection in the middle of what is told.
func TestB001NothingIsLostAtTheJoin(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
		b.read(g)
		g.tell(t, b.net, key(0))
		until(t, func() bool { return len(b.hints()) == 1 }, "it has begun")
		for i := range 5 {
			g.tell(t, b.net, key(2*i))
			g.cut(b.net)
			g.tell(t, b.net, key(2*i+1))
		}
		until(t, func() bool { return len(b.hints()) == 10 }, "each is a hint")
	})
}

// TestB002AnOldCursorIsAGap has hosts that no longer keep what the cursor points at.
func TestB002AnOldCursorIsAGap(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
		for i := range 3 {
			g.tell(t, b.net, key(i))
		}
		old := int64(1)
		if g.name == protocolV1 {
			old = time.Now().Add(-9 * 24 * time.Hour).UnixMicro()
		}
		b.set(g, old)
		g.forget(b.net)
		g.tell(t, b.net, key(5))
		b.read(g)
		until(t, func() bool { return len(b.gaps()) > 0 }, "it is noted")
		require.NotContains(t, b.gaps(), reasonFresh)
		until(t, func() bool { g.tell(t, b.net, key(7)); return b.hints()[key(7)].DID != "" }, "and what comes is read")
	})
}

// TestB007QuietIsNotBrokenWhateverIsSpoken keeps hosts silent for many times the read deadline.
func TestB007QuietIsNotBrokenWhateverIsSpoken(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t)
		g.silence(b.net)
		r := readAt(t, g.url(b.net), func(c *SourceConfig) { c.Ping = 700 * time.Millisecond })
		until(t, func() bool { return g.subscribers(b.net) == 1 }, "connected")
		require.Never(t, func() bool { return len(g.connects(b.net)) > 1 }, 3*time.Second, 20*time.Millisecond)
		up, changes := r.last()
		require.True(t, up)
		require.Equal(t, 1, changes)
	})
}

// TestB008OtherFramesMoveTheCursor tells nothing but what concerns nobody here.
func TestB008OtherFramesMoveTheCursor(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t)
		b.read(g)
		g.tell(t, b.net, key(0))
		until(t, func() bool { return len(b.hints()) == 1 }, "read")
		first := b.reached(g)
		until(t, func() bool { g.other(t, b.net); return b.reached(g) > first }, "identity frames move the cursor")
	})
}

// TestB008QuietMovesTheCursorOfTimes advances a cursor by the time in which nothing happened.
func TestB008QuietMovesTheCursorOfTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	es, err := ParseEndpoints(b.net.JetstreamURL() + "," + b.net.JetstreamV2URL())
	require.NoError(t, err)
	for _, e := range es {
		r := newReader(b.Ingest, e)
		r.last.Store(time.Now().Add(-3 * time.Hour).UnixMicro())
		for range stillPings {
			require.Less(t, r.last.Load(), time.Now().Add(-2*time.Hour).UnixMicro(), "not before it was quiet long enough")
			r.quiet()
		}
		r.quiet()
		moved := time.Since(time.UnixMicro(r.last.Load())) < time.Hour
		require.Equal(t, !e.protocol.numbered, moved, "numbers do not follow from the time")
	}
}

// TestB009ACursorIsNotCarriedToAnotherProtocol reads one host by one protocol and then by the others.
func TestB009ACursorIsNotCarriedToAnotherProtocol(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, g := range tongues() {
		halt := b.read(g)
		g.tell(t, b.net, key(0))
		until(t, func() bool { return b.reached(g) > 0 }, "it has a cursor of its own")
		require.Contains(t, b.gaps(), reasonFresh)
		halt()
		cs := g.connects(b.net)
		q, err := url.ParseQuery(cs[len(cs)-1])
		require.NoError(t, err)
		if g.name != protocolV1 {
			require.Empty(t, q.Get("cursor"), "it begins live")
		}
	}
	gs, err := b.store.OpenGaps(t.Context())
	require.NoError(t, err)
	require.Len(t, gs, 3, "what each has not told is looked up")
}

// TestB010EveryRoundOfCatchingUpMovesForward has hosts that cut the connection after each 40 messages.
func TestB010EveryRoundOfCatchingUpMovesForward(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
		g.forget(b.net)
		g.tell(t, b.net, key(0))
		halt := b.read(g)
		g.tell(t, b.net, key(1))
		until(t, func() bool { return b.reached(g) > 0 && len(b.hints()) > 0 }, "it has a cursor")
		halt()
		g.cutAfter(b.net, 40)
		for i := range 200 {
			g.tell(t, b.net, key(i))
		}
		before := len(g.connects(b.net))
		b.read(g)
		until(t, func() bool { return len(b.hints()) == 200 }, "all of it is read")
		require.LessOrEqual(t, len(g.connects(b.net))-before, 30, "no loop")
	})
}

// TestB012WhatIsNoFrameIsCountedInEveryProtocol sends what is none, and then one that is.
func TestB012WhatIsNoFrameIsCountedInEveryProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path string
		kind int
		bad  []string
		good string
	}{
		"v2": {jetstream.PathV2, websocket.TextMessage, []string{
			`{}`, `null`, `{"$type":"message"}`, `{"$type":"message","payload":{}}`, good(1),
			`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#commit","seq":0,"did":"did:web:a.b"}}`,
			commitV2(3, "app.bsky.feed.post")[:100],
		}, commitV2(3, ticketNSID)},
		"firehose": {firehose.Path, websocket.BinaryMessage, []string{
			``, `{}`, good(1), "\xa0", "\xa1bop\x01", "\xa2bop\x01atg#commit", "\xa2bop\x01atg#commit\xa0", "\xa2bop\x01atg#commit\xa1cseq\x05",
			string(commitRepos(t, 3, ticketNSID)) + "x", string(commitRepos(t, 3, ticketNSID)[:60]), strings.Repeat("\x81", 5000),
		}, string(commitRepos(t, 3, ticketNSID))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, connects := speaker(t, func(_ int, ws *websocket.Conn) {
				for _, s := range c.bad {
					_ = ws.WriteMessage(c.kind, []byte(s))
				}
				_ = ws.WriteMessage(3-c.kind, []byte(c.good)) // the other type
				_ = ws.WriteMessage(c.kind, []byte(c.good))
				stay(ws)
			})
			r := readAt(t, "ws"+strings.TrimPrefix(base, "http")+c.path)
			require.EqualValues(t, 3, next(t, r).Pos)
			require.EqualValues(t, len(c.bad)+1, r.bad.Load())
			require.EqualValues(t, 1, connects.Load(), "one connection outlives it all")
		})
	}
}

// TestB013NumbersThatBeginAnewAreAGap has hosts that were set up anew and count from their beginning.
func TestB013NumbersThatBeginAnewAreAGap(t *testing.T) {
	each(t, func(t *testing.T, g tongue) {
		b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
		halt := b.read(g)
		g.tell(t, b.net, key(0))
		until(t, func() bool { return b.reached(g) > 0 }, "read")
		halt()
		ahead := int64(497_201)
		if g.name == protocolV1 {
			ahead = time.Now().UnixMicro()
		}
		b.set(g, ahead)
		for _, gap := range b.gaps() {
			require.Equal(t, reasonFresh, gap)
		}
		g.anew(b.net)
		b.read(g)
		for i := 1; i < 5; i++ {
			g.tell(t, b.net, key(i))
		}
		until(t, func() bool { g.tell(t, b.net, key(9)); return b.hints()[key(9)].DID != "" && b.reached(g) < ahead }, "what it tells is read, and counts")
		until(t, func() bool { return b.reached(g) > 0 }, "it has a cursor again")
		require.Condition(t, func() bool {
			s := strings.Join(b.gaps(), "\n")
			return strings.Contains(s, reasonBack) || strings.Contains(s, reasonFuture)
		}, "it is a gap: %v", b.gaps())
	})
}

// TestGapsAreMadeUpForAndThenHealthClears has a lookup that fails twice.
func TestGapsAreMadeUpForAndThenHealthClears(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	health := map[string]bool{}
	var said []string
	calls := &gapCalls{fail: 2}
	b := newBench(t, func(c *Config) {
		c.Clock = &quick{ping: 20 * time.Second}
		c.Gaps = calls
		c.Health = func(part string, ok bool, detail string) {
			mu.Lock()
			defer mu.Unlock()
			health[part] = ok
			if part == catchUpPart && !ok {
				said = append(said, detail)
			}
		}
	})
	g := tongues()[0]
	b.read(g)
	until(t, func() bool { return len(b.gaps()) == 1 }, "the first reading is a gap")
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = b.CatchUp(ctx) })
	until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(b.gaps()) == 0 && health[catchUpPart]
	}, "made up for")
	require.EqualValues(t, 3, calls.n.Load())
	require.EqualValues(t, 0, b.Stats().Gaps)
	mu.Lock()
	require.NotEmpty(t, said)
	require.Contains(t, strings.Join(said, "\n"), reasonFresh)
	require.True(t, health[streamPart])
	mu.Unlock()
	cancel()
	ended.Wait()
}

// gapCalls is a Gaps that fails a few times.
type gapCalls struct {
	n    atomic.Int64
	fail int64
}

func (g *gapCalls) Gap(context.Context, string, string, int64, int64, string) error {
	if g.n.Add(1) <= g.fail {
		return errors.New("not now")
	}
	return nil
}

// TestAnotherHostIsReadWhenTheFirstFails goes to the second host, and back when the first is well again.
func TestAnotherHostIsReadWhenTheFirstFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
	var well atomic.Bool
	js := jetstream.New(jetstream.Config{Clock: clock.Real{}, Ping: time.Hour})
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !well.Load() {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		js.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { js.Cut(); first.Close() })
	list := "ws" + strings.TrimPrefix(first.URL, "http") + "/subscribe," + b.net.FirehoseURL()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = b.Follow(ctx, list) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	until(t, func() bool { return b.net.Relay().Subscribers() == 1 }, "the second is read")
	tongues()[2].tell(t, b.net, key(1))
	until(t, func() bool { return len(b.hints()) == 1 }, "and what it tells counts")
	until(t, func() bool { return b.Stats().Protocol == protocolRepos }, "as the figures say")
	well.Store(true)
	until(t, func() bool { return b.net.Relay().Subscribers() == 0 && js.Subscribers() == 1 }, "back to the first")
	_, err := js.Forge(nobody, "create", ticketNSID, key(2), map[string]any{})
	require.NoError(t, err)
	until(t, func() bool { return len(b.hints()) == 2 }, "which tells again")
	gs, err := b.store.OpenGaps(t.Context())
	require.NoError(t, err)
	require.Len(t, gs, 2, "what each did not tell is looked up")
}

// TestTheFilterOfAccountsGrowsOnAnOpenConnection lets somebody in while the stream is read.
func TestTheFilterOfAccountsGrowsOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.OnlyFollowed = true })
	bob, eve := b.account("bob.test"), b.account("eve.test")
	g := tongues()[0]
	b.read(g)
	declare := func(a *devnet.Account, rkey string) {
		_, _, err := a.Put(declarationNSID, rkey, map[string]any{"repo": nobody, "createdAt": "2026-01-01T00:00:00Z"}, "")
		require.NoError(t, err)
	}
	declare(bob, "3mzzzzzzzzz2b")
	declare(b.alice, "3mzzzzzzzzz2c")
	until(t, func() bool { return b.hints()["3mzzzzzzzzz2c"].DID != "" }, "the owner is followed")
	require.NoError(t, b.store.Allow(t.Context(), bob.DID.String(), b.alice.DID.String()))
	i := 0
	until(t, func() bool {
		i++
		declare(bob, fmt.Sprintf("3mzzzzzz%05d", i))
		declare(eve, fmt.Sprintf("3mzzzzzz%05d", i))
		for _, h := range b.hints() {
			require.NotEqual(t, eve.DID.String(), h.DID, "who is not followed is not heard")
			if h.DID == bob.DID.String() {
				return true
			}
		}
		return false
	}, "bob is followed now")
	require.Len(t, g.connects(b.net), 1, "on the same connection")
	require.Contains(t, g.connects(b.net)[0], "requireHello=true")
}
