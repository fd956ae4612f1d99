package store

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
)

const mainRef = "refs/heads/main"

func name(n int) string {
	if n == 0 {
		return strings.Repeat("0", 40)
	}
	return fmt.Sprintf("%040x", n)
}

func moved(from, to int, late bool) pipeline.Trigger {
	tr := pipeline.Trigger{Key: strings.Join([]string{"push", repoA, mainRef, name(from), name(to)}, ":"), Kind: pipeline.Push,
		Repo: repoA, Ref: mainRef, Old: name(from), Commit: name(to), Late: late, Actor: bob, ActorSource: pipeline.FromKnot}
	if late {
		tr.Actor = alice // a look at the knot cannot know who pushed
	} else {
		tr.Options = []string{"ci-verbose"}
	}
	return tr
}

// told accepts the notice of a push, found what a look at the knot saw.
func (b *bench) told(from, to int) Accepted {
	b.t.Helper()
	tr := moved(from, to, false)
	a, err := b.Accept(b.ctx(), Effects{Event: &tr})
	require.NoError(b.t, err)
	return a
}

func (b *bench) found(expect string, from, to int) Accepted {
	b.t.Helper()
	tr := moved(from, to, true)
	a, err := b.Accept(b.ctx(), Effects{Event: &tr, Move: &RefMove{Expect: expect}})
	require.NoError(b.t, err)
	return a
}

func (b *bench) at() string {
	b.t.Helper()
	l, err := b.Look(b.ctx(), repoA)
	require.NoError(b.t, err)
	return l.Refs[mainRef]
}

// TestLatePushAndItsNoticeAreOne has a push found by a look and told by its own notice, in both orders.
func TestLatePushAndItsNoticeAreOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.told(0, 1)
	late := b.found(name(1), 1, 2)
	require.False(t, late.Duplicate)
	told := b.told(1, 2)
	require.True(t, told.Duplicate)
	require.Equal(t, late.EventID, told.EventID)

	told = b.told(2, 3)
	require.True(t, b.found(name(2), 2, 3).Overtaken, "the ref was moved since it was looked up")
	require.True(t, b.found(name(3), 2, 3).Duplicate)
	require.Equal(t, name(3), b.at())
}

// TestNoticesWithinAJumpRunOnce finds a ref three pushes further; their notices come afterwards.
func TestNoticesWithinAJumpRunOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.told(0, 1)
	late := b.found(name(1), 1, 4)
	require.False(t, b.told(1, 2).Duplicate, "a push of its own, with a commit that has not run")
	require.False(t, b.told(2, 3).Duplicate)
	require.Equal(t, name(4), b.at(), "the ref is where the look saw it")
	require.Equal(t, late.EventID, b.told(3, 4).EventID)
	// From here on it goes as usual, back to a commit that has run as well.
	require.False(t, b.told(4, 5).Duplicate)
	require.True(t, b.told(3, 4).Duplicate, "told once more")
	require.False(t, b.told(5, 4).Duplicate)
	require.False(t, b.told(4, 5).Duplicate)
	require.Equal(t, name(5), b.at())
	require.False(t, b.told(5, 0).Duplicate)
	require.Empty(t, b.at(), "a branch that is gone is nowhere")
}

// TestFirstSightTakesRefsAsTheyAre but for those that a push has told of; later looks forget what is gone.
func TestFirstSightTakesRefsAsTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.told(0, 1)
	look, err := b.Look(b.ctx(), repoA)
	require.NoError(t, err)
	require.True(t, look.First.IsZero())
	tr := moved(0, 9, false)
	tr.Ref, tr.Key = "refs/heads/meanwhile", "meanwhile"
	_, err = b.Accept(b.ctx(), Effects{Event: &tr})
	require.NoError(t, err)
	require.NoError(t, b.Sight(b.ctx(), repoA, look, []Ref{{mainRef, name(7)}, {"refs/tags/v1", name(8)}, {tr.Ref, name(6)}}, nil))
	look, err = b.Look(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, map[string]string{mainRef: name(7), "refs/tags/v1": name(8), tr.Ref: name(9)}, look.Refs)
	require.Equal(t, b.clock.Now(), look.First)
	b.clock.Advance(time.Hour)
	require.NoError(t, b.Sight(b.ctx(), repoA, look, []Ref{{"refs/heads/new", name(9)}}, []Ref{{"refs/tags/v1", name(8)}, {mainRef, name(6)}}))
	again, err := b.Look(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, map[string]string{mainRef: name(7), tr.Ref: name(9)}, again.Refs)
	require.Equal(t, look.First, again.First)
}

// TestAnyOrderOfNoticesAndLooks pushes a branch on and on. Notices are lost, come late, out of order, and twice in a row, and
// somebody looks at the knot now and then. No commit runs twice, what was told has run, and so has the head.
func TestAnyOrderOfNoticesAndLooks(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "s.db"), Owner: boss, Clock: clock.Real{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ids := tid.New(clock.Real{})
	rapid.Check(t, func(rt *rapid.T) {
		repo := "did:plc:repo" + ids.Next()
		moved := func(from, to int, late bool) pipeline.Trigger {
			tr := moved(from, to, late)
			tr.Repo, tr.Key = repo, strings.ReplaceAll(tr.Key, repoA, repo)
			return tr
		}
		head, told := 0, map[int]bool{}
		var pending [][2]int
		accept := func(e Effects) {
			_, err := s.Accept(t.Context(), e)
			require.NoError(rt, err)
		}
		look := func() {
			l, err := s.Look(t.Context(), repo)
			require.NoError(rt, err)
			at := l.Refs[mainRef]
			if !l.First.IsZero() && head != 0 && at != name(head) {
				tr := moved(0, head, true)
				if at != "" {
					tr.Old = at
					tr.Key = strings.Join([]string{"push", repo, mainRef, at, name(head)}, ":")
				}
				accept(Effects{Event: &tr, Move: &RefMove{Expect: at}})
			}
			var refs []Ref
			if head != 0 {
				refs = []Ref{{mainRef, name(head)}}
			}
			require.NoError(rt, s.Sight(t.Context(), repo, l, refs, nil))
		}
		var last [2]int
		deliver := func(push [2]int) {
			tr := moved(push[0], push[1], false)
			accept(Effects{Event: &tr})
			told[push[1]], last = true, push
		}
		look()
		for range rapid.IntRange(1, 25).Draw(rt, "length") {
			switch rapid.SampledFrom([]string{"push", "push", "lost", "look", "tell", "again"}).Draw(rt, "what") {
			case "push":
				pending = append(pending, [2]int{head, head + 1})
				head++
			case "lost":
				head++
			case "look":
				look()
			case "tell":
				if len(pending) > 0 {
					i := rapid.IntRange(0, len(pending)-1).Draw(rt, "which")
					deliver(pending[i])
					pending = slices.Delete(pending, i, i+1)
				}
			case "again":
				if last[1] != 0 {
					deliver(last)
				}
			}
		}
		for _, p := range pending {
			deliver(p)
		}
		look()
		look()
		runs := map[string]int{}
		rows, err := s.r.query(t.Context(), "SELECT json_extract(body, '$.commit') FROM events WHERE repo = ?", repo)
		_, err = collect(rows, err, "read", func(scan func(...any) error) (struct{}, error) {
			var c string
			err := scan(&c)
			runs[c]++
			return struct{}{}, err
		})
		require.NoError(rt, err)
		for c, k := range runs {
			require.LessOrEqual(rt, k, 1, "commit %s", c)
		}
		for c := range told {
			require.Equal(rt, 1, runs[name(c)], "commit %d was told", c)
		}
		if head > 0 {
			require.Equal(rt, 1, runs[name(head)], "the head")
		}
	})
}

// TestAPushToldEarlyAndAgainIsOne tells pushes before the one that they go on from, and again after it, as a knot does
// whose first notice met a server that was down.
func TestAPushToldEarlyAndAgainIsOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.told(0, 1)
	require.Equal(t, name(1), b.at())
	late := b.told(3, 4)
	next := b.told(2, 3)
	require.Equal(t, name(1), b.at())
	b.told(1, 2)
	require.Equal(t, name(4), b.at(), "what was told before counts as well")
	for _, again := range []struct {
		from, to int
		was      Accepted
	}{{3, 4, late}, {2, 3, next}, {3, 4, late}} {
		a := b.told(again.from, again.to)
		require.True(t, a.Duplicate, "%d to %d", again.from, again.to)
		require.Equal(t, again.was.EventID, a.EventID)
	}
	// Back, and the same move anew: that is another push.
	require.False(t, b.told(4, 3).Duplicate)
	require.False(t, b.told(3, 4).Duplicate)
	require.Equal(t, name(4), b.at())
}

// TestEachPushIsOneHoweverTold tells a history of pushes in any order, each at least once.
func TestEachPushIsOneHoweverTold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		n := rapid.IntRange(1, 7).Draw(rt, "pushes")
		var order []int
		for i := range n {
			for range rapid.IntRange(1, 3).Draw(rt, "times") {
				order = append(order, i)
			}
		}
		order = rapid.Permutation(order).Draw(rt, "order")
		events := map[int]int64{}
		for _, i := range order {
			a := b.told(i, i+1)
			if was, known := events[i]; known {
				require.True(rt, a.Duplicate, "%d of %v", i, order)
				require.Equal(rt, was, a.EventID, "%d of %v", i, order)
				continue
			}
			require.False(rt, a.Duplicate, "%d of %v", i, order)
			events[i] = a.EventID
		}
		require.Len(rt, events, n)
	})
}
