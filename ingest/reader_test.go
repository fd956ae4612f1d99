package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/jetstream"
	"spindle/internal/clock"
	"spindle/store"
)

// follow reads the stream of b's network, and proves nothing, until the returned function is called.
func (b *bench) follow() (halt func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Follow(ctx, b.net.JetstreamURL())
	}()
	halt = func() { cancel(); <-ended }
	b.t.Cleanup(halt)
	until(b.t, func() bool { return b.net.Jetstream().Subscribers() == 1 }, "connected")
	return halt
}

func key(i int) string {
	return fmt.Sprintf("3mzzzzzzz%s2a", string(rune('a'+i/26%26))+string(rune('a'+i%26)))
}

// hints are the keys of the hints that stand, without that of the marker.
func (b *bench) hints() map[string]store.Recheck {
	b.t.Helper()
	due, err := b.store.DueRechecks(context.Background(), 10_000)
	require.NoError(b.t, err)
	out := map[string]store.Recheck{}
	for _, r := range due {
		if r.Rkey != "3mzzzzzzzzz2z" && r.Collection != accountHint {
			out[r.Rkey] = r
		}
	}
	return out
}

func event(us int64, rkey string) jetstream.Event {
	return jetstream.Event{DID: nobody, TimeUS: us, Kind: "commit", Commit: &jetstream.Commit{
		Rev: "3mzzzzzzzzz2a", Operation: "create", Collection: ticketNSID, Rkey: rkey, Record: []byte(`{}`), CID: "x",
	}}
}

// TestB001LateEventsAreNotTakenForSeen tells events out of order and cuts in the middle of them.
func TestB001LateEventsAreNotTakenForSeen(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
	js := b.net.Jetstream()
	b.follow()
	base := time.Now().UnixMicro()
	tell := func(us ...int64) {
		for _, n := range us {
			_, err := js.Append(event(base+n, key(int(n-100))))
			require.NoError(t, err)
		}
	}
	tell(100, 101, 105)
	until(t, func() bool { return b.cursor() == base+105 }, "the first part is read")
	js.Cut()
	tell(102, 103, 104, 106)
	until(t, func() bool { return len(b.hints()) == 7 }, "each of the seven is a hint")
	until(t, func() bool { return b.cursor() == base+106 }, "the cursor is at the last")
}

// TestReaderMeetsEveryFault loses no hint to delays, repetitions, another order and cuts.
func TestReaderMeetsEveryFault(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]jetstream.Faults{
		"delay":     {Delay: time.Millisecond},
		"duplicate": {Duplicate: func(jetstream.Event) bool { return true }},
		"reorder":   {Reorder: 7},
		"cut":       {CutAfter: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *Config) { c.Clock = &quick{ping: 20 * time.Second} })
			js := b.net.Jetstream()
			b.follow()
			js.SetFaults(f)
			for i := range 60 {
				_, err := js.Forge(nobody, "create", ticketNSID, key(i), map[string]any{})
				require.NoError(t, err)
			}
			until(t, func() bool { return len(b.hints()) == 60 }, "every hint is there")
		})
	}
}

// hasty is a clock whose waits are half as long.
type hasty struct{ clock.Real }

func (h hasty) Sleep(ctx context.Context, d time.Duration) error { return h.Real.Sleep(ctx, d/2) }

// TestB010CatchingUpMovesForward has a host that drops us after each 200 frames of history.
func TestB010CatchingUpMovesForward(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Clock = hasty{} })
	js := b.net.Jetstream()
	js.Forget(time.Now().Add(time.Minute).UnixMicro())
	u, err := url.Parse(b.net.JetstreamURL())
	require.NoError(t, err)
	from := time.Now().Add(-time.Hour).UnixMicro()
	_, err = b.store.Accept(t.Context(), store.Effects{Cursor: &store.Cursor{Source: jetstreamSource, Host: u.Host, Protocol: protocolV1, Value: from}})
	require.NoError(t, err)
	for i := range 2000 {
		_, err := js.Append(event(from+int64(i), fmt.Sprintf("3mzzzzz%04dza", i)))
		require.NoError(t, err)
	}
	js.SetFaults(jetstream.Faults{CutAfter: 200})
	b.follow()
	until(t, func() bool { return len(b.hints()) == 2000 }, "all of it is read")
	require.LessOrEqual(t, len(js.Connects()), 12)
}

// dying is a store that fails, or ends its process, at the nth write.
type dying struct {
	Store
	left atomic.Int64
	kill func() // nil: only fail
}

func (d *dying) Accept(ctx context.Context, e store.Effects) (store.Accepted, error) {
	if d.left.Add(-1) < 0 {
		if d.kill != nil {
			d.kill()
		}
		return store.Accepted{}, errDown
	}
	return d.Store.Accept(ctx, e)
}

// TestKillBetweenHintsLosesNone stops the reader after each number of writes and starts it again: the cursor
// never covers a hint that is not stored.
func TestKillBetweenHintsLosesNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	js := b.net.Jetstream()
	js.Forget(time.Now().Add(time.Minute).UnixMicro())
	u, err := url.Parse(b.net.JetstreamURL())
	require.NoError(t, err)
	// Begin far enough back that the rewind does not hide a cursor that ran ahead.
	from := time.Now().Add(-50 * time.Minute)
	_, err = b.store.Accept(t.Context(), store.Effects{Cursor: &store.Cursor{Source: jetstreamSource, Host: u.Host, Protocol: protocolV1, Value: from.UnixMicro()}})
	require.NoError(t, err)
	for i := range 100 {
		_, err := js.Append(event(from.Add(time.Duration(i)*20*time.Second).UnixMicro(), key(i)))
		require.NoError(t, err)
	}
	js.SetFaults(jetstream.Faults{Delay: 200 * time.Microsecond}) // several batches
	for n := int64(0); n < 5; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		c := b.c
		d := &dying{Store: b.store, kill: cancel}
		d.left.Store(n)
		c.Store = d
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = New(c).Follow(ctx, b.net.JetstreamURL())
		}()
		until(t, func() bool { return ctx.Err() != nil || len(b.hints()) == 100 }, "killed, or through")
		cancel()
		<-ended
		hints := b.hints()
		at := time.UnixMicro(b.cursor())
		for i := range 100 {
			if told := from.Add(time.Duration(i) * 20 * time.Second); !told.After(at.Add(-10 * time.Second)) {
				require.Contains(t, hints, key(i), "the cursor is past a hint that is not stored")
			}
		}
	}
	js.SetFaults(jetstream.Faults{})
	b.follow()
	until(t, func() bool { return len(b.hints()) == 100 }, "nothing is lost")
}

// TestWritesThatFailAreRepeated has a store that is full for a while.
func TestWritesThatFailAreRepeated(t *testing.T) {
	t.Parallel()
	var d *dying
	b := newBench(t, func(c *Config) {
		c.Clock = &quick{ping: 20 * time.Second}
		d = &dying{Store: c.Store}
		c.Store = d
	})
	b.follow()
	for i := range 3 {
		_, err := b.net.Jetstream().Forge(nobody, "create", ticketNSID, key(i), map[string]any{})
		require.NoError(t, err)
	}
	until(t, func() bool { return d.left.Load() < -3 }, "tried again")
	require.Empty(t, b.hints())
	d.left.Store(1 << 40)
	until(t, func() bool { return len(b.hints()) == 3 }, "written when it can be")
}

// TestB009AnotherHostStartsAnew keeps the cursor of one host from another.
func TestB009AnotherHostStartsAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	halt := b.follow()
	b.heard()
	halt()
	other := jetstream.New(jetstream.Config{Clock: clock.Real{}})
	srv := httptest.NewServer(other)
	t.Cleanup(func() { other.Cut(); srv.Close() })
	began := time.Now().Add(-time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Follow(ctx, "ws"+strings.TrimPrefix(srv.URL, "http")+"/subscribe")
	}()
	until(t, func() bool { return other.Subscribers() == 1 }, "connected")
	q, err := url.ParseQuery(other.Connects()[0].Query)
	require.NoError(t, err)
	from, err := strconv.ParseInt(q.Get("cursor"), 10, 64)
	require.NoError(t, err)
	require.WithinRange(t, time.UnixMicro(from).Add(10*time.Second), began, time.Now(), "it begins when it is begun")
	cancel()
	<-ended
	before := b.cursor()
	b.follow()
	cs := b.net.Jetstream().Connects()
	require.Contains(t, cs[len(cs)-1].Query, fmt.Sprintf("cursor=%d", before-10_000_000), "the first host's is kept")
}

// TestB008RareEventsDoNotHoldTheCursorBack moves it on with frames that concern nobody here.
func TestB008RareEventsDoNotHoldTheCursorBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow()
	b.heard()
	first := b.cursor()
	js := b.net.Jetstream()
	until(t, func() bool {
		_, err := js.Append(jetstream.Event{DID: nobody, Kind: "identity", Identity: &jetstream.Identity{DID: nobody}})
		return err == nil && b.cursor() > first
	}, "identity frames move the cursor")
}

// TestFutureFramesDoNotMoveTheCursor has a host that tells a time to come: its hint counts, its time does not.
func TestFutureFramesDoNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow()
	b.heard()
	_, err := b.net.Jetstream().Append(event(time.Now().Add(365*24*time.Hour).UnixMicro(), key(1)))
	require.NoError(t, err)
	until(t, func() bool { return len(b.hints()) == 1 }, "the hint is taken")
	require.Less(t, b.cursor(), time.Now().Add(time.Minute).UnixMicro())
	require.Equal(t, 1, b.tries.of("record_future_frame"))
}

// TestOnlyPlacesThatExistAreHints refuses names that could not be of a record.
func TestOnlyPlacesThatExistAreHints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		did, collection, rkey string
		kind                  string
		ok                    bool
	}{
		{nobody, devnet.Ticket, "3mzzzzzzzzz2a", "commit", true},
		{"did:web:host.example", devnet.Manifest, "self", "commit", true},
		{nobody, "org.tangled.other", "a", "commit", false},
		{nobody, devnet.Ticket, "../a", "commit", false},
		{nobody, devnet.Ticket, "", "commit", false},
		{nobody, devnet.Ticket, strings.Repeat("a", 600), "commit", false},
		{"alice.test", devnet.Ticket, "a", "commit", false},
		{"did:plc:x y", devnet.Ticket, "a", "commit", false},
	} {
		hints := everyone.hints(t.Context(), Frame{DID: c.did, Pos: 1, Kind: c.kind, Ops: []Op{{"create", c.collection, c.rkey}}})
		require.Equal(t, c.ok, len(hints) == 1, "%+v", c)
	}
	require.Empty(t, everyone.hints(t.Context(), Frame{DID: nobody, Pos: 1, Kind: "commit"}))
}

func TestFollowRefusesWhatIsNoStream(t *testing.T) {
	t.Parallel()
	in := New(Config{Log: slog.New(slog.DiscardHandler)})
	require.Error(t, in.Follow(t.Context(), "https://host/subscribe"))
	require.Error(t, in.Follow(t.Context(), "ws://a b"))
}
