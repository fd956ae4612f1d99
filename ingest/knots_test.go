package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/knot"
	"spindle/pipeline"
	"spindle/store"
)

// silent keeps a knot from calling notifyEvent.
var silent = knot.Faults{Drop: func(knot.Push) bool { return true }}

// knotHost is the host of a knot as bindings have it.
func knotHost(k *devnet.Knot) string { return k.Server.Addr() }

// at is how far a stream of a knot has been read and committed.
func (b *bench) at(k *devnet.Knot, protocol string) int64 {
	b.t.Helper()
	c, _, err := b.store.Cursor(context.Background(), knotSource, knotHost(k), protocol)
	require.NoError(b.t, err)
	return c.Value
}

// settled waits until no hint is left.
func (b *bench) settled() {
	b.t.Helper()
	until(b.t, func() bool {
		n, err := b.store.CountRechecks(context.Background())
		return err == nil && n == 0
	}, "hints are settled")
}

// onKnot starts a knot that does not call, whose streams do as f says, with a repository that is served and
// a branch that has one commit.
func (b *bench) onKnot(name string, f knot.StreamFaults) (*devnet.Knot, *devnet.Repo) {
	b.t.Helper()
	k, err := b.net.StartKnot(b.t.Context(), name)
	require.NoError(b.t, err)
	k.SetFaults(silent)
	k.SetStreams(f)
	r, err := b.net.CreateRepo(b.t.Context(), b.alice, strings.TrimSuffix(name, ".test"), devnet.RepoOptions{Spindle: spindle, Knot: k})
	require.NoError(b.t, err)
	until(b.t, func() bool { return b.served(r) }, "served")
	until(b.t, func() bool { o, n := k.StreamReaders(); return (o == 1 || f.NoOlder) && (n == 1 || f.NoNewer) }, "followed")
	return k, r
}

// of lists the events of one repository that wait.
func (b *bench) of(r *devnet.Repo) (out []store.Event) {
	for _, e := range b.events() {
		if e.Trigger.Repo == r.DID.String() {
			out = append(out, e)
		}
	}
	return out
}

// count is how many events a repository has that wait, in all.
func (b *bench) count(r *devnet.Repo) int {
	b.t.Helper()
	n := 0
	for {
		es := b.of(r)
		if len(es) == 0 {
			return n
		}
		for _, e := range es {
			require.NoError(b.t, b.store.SettleEvent(context.Background(), e.ID, store.EventNoMatch, "a test"))
			n++
		}
	}
}

// TestB016OneRunForEachPushWhateverTheKnotsAge has knots that tell of a push as a compiled pipeline, as a ref update,
// as both in either order, and as something unknown.
func TestB016OneRunForEachPushWhateverTheKnotsAge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKnots()
	for _, c := range []struct {
		name  string
		kinds []string
		runs  int
	}{
		{"x", []string{knot.Pipeline}, 1},
		{"y", []string{knot.RefUpdate}, 1},
		{"z", []string{knot.Pipeline, knot.RefUpdate}, 1},
		{"zz", []string{knot.RefUpdate, knot.Pipeline}, 1},
		{"w", []string{"sh.tangled.future.thing"}, 0},
	} {
		k, r := b.onKnot(c.name+".test", knot.StreamFaults{NoNewer: true, Older: []string{}})
		p, err := r.Push(t.Context(), devnet.Change{})
		require.NoError(t, err)
		push := knot.Push{Repo: r.DID, Ref: p.Ref, OldSHA: zeros, NewSHA: p.SHA, Actor: b.alice.DID}
		now := time.Now()
		for i, kind := range c.kinds {
			k.ForgeEventAt(kind, k.OlderEvent(kind, push, r.Git), now.Add(time.Duration(i)*5*time.Second))
		}
		end := time.Now().Add(2 * time.Minute)
		k.ForgeEventAt(knot.RefUpdate, k.OlderEvent(knot.RefUpdate, knot.Push{Ref: "refs/heads/nowhere", OldSHA: zeros, NewSHA: commitA}, r.Git), end)
		until(t, func() bool { return b.at(k, olderProtocol) >= end.UnixMicro()*1000 }, c.name+": read to the end")
		b.settled()
		es := b.of(r)
		require.Len(t, es, c.runs, c.name)
		if c.runs == 1 {
			require.Equal(t, "push:"+r.DID.String()+":"+p.Ref+":"+zeros+":"+p.SHA, es[0].Trigger.Key)
			require.Equal(t, pipeline.FromClaim, es[0].Trigger.ActorSource)
			require.Equal(t, 1, b.count(r), "no other behind it")
		}
	}
	require.Positive(t, b.tries.of("knot_other_event"))
}

// TestOnePushByEveryWay is told of one push by a call, by the signed stream and by the older one.
func TestOnePushByEveryWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKnots()
	_, r := b.onKnot("all.test", knot.StreamFaults{Older: []string{knot.RefUpdate, knot.Pipeline}, Duplicate: true})
	p, err := r.Push(t.Context(), devnet.Change{Options: []string{"verbose-ci"}})
	require.NoError(t, err)
	until(t, func() bool { return len(b.of(r)) == 1 }, "the streams tell of it")
	c := call(r, zeros, p.SHA)
	c.Actor, c.Options = b.alice.DID.String(), []string{"verbose-ci"}
	a, err := b.Push(t.Context(), c)
	require.NoError(t, err)
	require.True(t, a.Duplicate)
	// Back and forth: what the streams tell again, late, is no new move.
	q, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"a": "b"}})
	require.NoError(t, err)
	until(t, func() bool { return b.at(b.knotOf(r), newerProtocol) >= 2 }, "read")
	b.settled()
	require.Equal(t, 2, b.count(r))
	require.NotEqual(t, p.SHA, q.SHA)
	b.knotOf(r).Server.Cut()
	until(t, func() bool { o, _ := b.knotOf(r).StreamConnects(); return len(o) >= 2 }, "connected again, with a rewind")
	r2, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"c": "d"}})
	require.NoError(t, err)
	until(t, func() bool { return len(b.of(r)) == 1 }, "the third push is told")
	b.settled()
	require.Equal(t, r2.SHA, b.of(r)[0].Trigger.Commit)
	require.Equal(t, 1, b.count(r), "only the third")
}

// knotOf is the knot of a repository that onKnot made.
func (b *bench) knotOf(r *devnet.Repo) *devnet.Knot { return b.net.KnotOf(r) }

// TestT07OnlyTheKnotOfARepositoryMaySpeakForIt has another knot tell of pushes, and the true one tell what it cannot show
// and what nobody has signed.
func TestT07OnlyTheKnotOfARepositoryMaySpeakForIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKnots()
	k, r := b.onKnot("true.test", knot.StreamFaults{Older: []string{}})
	other, mine := b.onKnot("other.test", knot.StreamFaults{Older: []string{}})
	records, err := k.Records.Repo(r.DID)
	require.NoError(t, err)
	theirs, err := other.Records.Repo(mine.DID)
	require.NoError(t, err)
	stranger, err := atcrypto.GeneratePrivateKeyK256()
	require.NoError(t, err)
	push := knot.Push{Repo: r.DID, Ref: "refs/heads/main", OldSHA: zeros, NewSHA: commitA, Actor: b.alice.DID}

	other.ForgeEvent(knot.RefUpdate, other.OlderEvent(knot.RefUpdate, push, r.Git))
	require.NoError(t, other.ForgePush(knot.PushEvent(push, time.Now()), records.Key()))
	k.ForgeEvent(knot.RefUpdate, k.OlderEvent(knot.RefUpdate, push, r.Git))
	require.NoError(t, k.ForgePush(knot.PushEvent(push, time.Now()), nil))
	require.NoError(t, k.ForgePush(knot.PushEvent(push, time.Now()), stranger))
	require.NoError(t, k.ForgePush(knot.PushEvent(push, time.Now()), theirs.Key()))
	until(t, func() bool { return b.tries.of("knot_unsigned") == 1 && b.tries.of("knot_wrong_signature") == 2 }, "forgeries are counted")
	until(t, func() bool { return b.tries.of("knot_unproven_push") == 1 && b.tries.of("knot_not_its_host") >= 1 }, "claims are counted")
	b.settled()
	require.Empty(t, b.of(r))
	require.Empty(t, b.of(mine))

	p, err := r.Push(t.Context(), devnet.Change{})
	require.NoError(t, err)
	until(t, func() bool { return len(b.of(r)) == 1 }, "the true push is heard")
	require.Equal(t, p.SHA, b.of(r)[0].Trigger.Commit)
	require.Equal(t, pipeline.FromStream, b.of(r)[0].Trigger.ActorSource)
}

// gapsOf lists the gaps of a knot's streams that stand.
func (b *bench) gapsOf(k *devnet.Knot) (out []store.Gap) {
	b.t.Helper()
	gs, err := b.store.OpenGaps(context.Background())
	require.NoError(b.t, err)
	for _, g := range gs {
		if g.Source == knotSource && g.Host == knotHost(k) {
			out = append(out, g)
		}
	}
	return out
}

// TestB013CursorOfTheFutureIsDroppedOnce has a knot refuse a cursor, by a status, by a message, and by giving out
// numbers that are lower.
func TestB013CursorOfTheFutureIsDroppedOnce(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]knot.StreamFaults{
		"refused": {NoOlder: true}, "told": {NoOlder: true, Frame: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.run()
			k := b.net.Knot()
			k.SetFaults(silent)
			k.SetStreams(f)
			r := b.repo(b.alice, "hello")
			until(t, func() bool { return b.served(r) }, "served")
			for i := range 4 {
				_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"n": fmt.Sprint(i)}})
				require.NoError(t, err)
			}
			_, err := b.store.Accept(t.Context(), store.Effects{Cursor: &store.Cursor{
				Source: knotSource, Host: knotHost(k), Protocol: newerProtocol, Value: 497201}})
			require.NoError(t, err)
			b.followKnots()
			until(t, func() bool { return b.at(k, newerProtocol) == 4 }, "the cursor is 4")
			b.settled()
			require.Equal(t, 4, b.count(r))
			_, asked := k.StreamConnects()
			require.Equal(t, []string{"497201", "0"}, asked)
			require.Len(t, b.gapsOf(k), 1)
			require.Equal(t, 1, b.tries.of("knot_renumbered"))
		})
	}
}

// TestB013NumbersThatBeginAgain rebuilds the knot's stream while it is being read.
func TestB013NumbersThatBeginAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKnots()
	k, r := b.onKnot("anew.test", knot.StreamFaults{NoOlder: true})
	for i := range 3 {
		_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"n": fmt.Sprint(i)}})
		require.NoError(t, err)
	}
	until(t, func() bool { return b.at(k, newerProtocol) == 3 }, "read")
	k.Renumber()
	k.Server.Cut()
	_, err := r.Push(t.Context(), devnet.Change{Files: map[string]string{"n": "after"}})
	require.NoError(t, err)
	until(t, func() bool { return b.at(k, newerProtocol) == 1 }, "the cursor follows")
	b.settled()
	require.Equal(t, 4, b.count(r))
	require.Len(t, b.gapsOf(k), 1)
}

// TestKnotStreamFaultsLoseNothing cuts, repeats and reorders.
func TestKnotStreamFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]knot.StreamFaults{
		"cut": {CutAfter: 2}, "duplicate": {Duplicate: true}, "reorder": {Reorder: 3},
	} {
		for _, f := range []knot.StreamFaults{f, {NoNewer: true, CutAfter: f.CutAfter, Duplicate: f.Duplicate, Reorder: f.Reorder}} {
			t.Run(fmt.Sprintf("%s/older=%v", name, f.NoNewer), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, func(c *Config) { c.Clock = hasty{} })
				b.runKnots()
				_, r := b.onKnot("odd.test", f)
				seen := 0
				for i := range 6 {
					_, err := r.Push(t.Context(), devnet.Change{Branch: fmt.Sprintf("b%d", i), Files: map[string]string{"n": fmt.Sprint(i)}})
					require.NoError(t, err)
				}
				until(t, func() bool { seen += b.count(r); return seen >= 6 }, "all six are told")
				b.settled()
				require.Equal(t, 6, seen+b.count(r))
			})
		}
	}
}

// TestKnotsComeAndGo follows a knot while it has a repository that is served, and no longer.
func TestKnotsComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKnots()
	k, r := b.onKnot("once.test", knot.StreamFaults{})
	require.NoError(t, r.SetSpindle(""))
	until(t, func() bool { o, n := k.StreamReaders(); return o == 0 && n == 0 }, "the knot is left alone")
	require.NoError(t, r.SetSpindle(spindle))
	until(t, func() bool { o, n := k.StreamReaders(); return o == 1 && n == 1 }, "and followed again")
}
