package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/queue"
	"spindle/store"
)

// P15, B-096: an owner with a hundred waiting workflows delays another's by one turn.
func TestP15OneOwnerDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.plan(repoA, 100)
	one := w.plan(repoB, 1)
	e := w.passes()
	w.run(e)
	w.ended(one)
	eventually(t, "alice's work to go on", func() bool { _, owners, _ := e.seen(); return len(owners) > 5 })
	_, owners, _ := e.seen()
	require.LessOrEqual(t, slices.Index(owners, bob), 1)
}

func TestSeatsAreFilledAndNeverExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var e *executor
	e = &executor{do: func(_ context.Context, c *store.Claimed) {
		// The first attempts wait for one another, which proves that three run side by side.
		eventually(t, "three at a time", func() bool { _, _, most := e.seen(); return most >= 3 })
		w.finish(c, pipeline.Passed)
	}}
	id := w.plan(repoA, 30)
	d, stop := w.run(e, seats(3))
	w.ended(id)
	stop()
	leases, _, most := e.seen()
	require.Equal(t, 3, most)
	require.Len(t, leases, 30)
	require.Zero(t, d.Running())
	require.Contains(t, d.String(), "3 seats")
}

func TestNoAttemptStartsTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	e := w.passes()
	ids := []pipeline.ID{w.plan(repoA, 40), w.plan(repoB, 40)}
	// Two dispatchers want the same work.
	w.run(e, seats(4))
	w.run(e, seats(4), func(c *queue.Config) { c.Holder = "local/2" })
	for _, id := range ids {
		require.Equal(t, pipeline.Passed, w.ended(id).Status)
	}
	leases, _, most := e.seen()
	require.LessOrEqual(t, most, 8)
	require.Len(t, leases, 80)
	seen := map[[2]string]bool{}
	for _, l := range leases {
		k := [2]string{string(l.Pipeline), l.Workflow}
		require.False(t, seen[k], "%v started twice", k)
		require.Equal(t, 1, l.Attempt)
		seen[k] = true
	}
}

func TestPerOwnerCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	started := make(chan *store.Claimed, 10)
	w.plan(repoA, 5)
	w.plan(repoB, 1)
	d, _ := w.run(w.obedient(started, nil), seats(4), func(c *queue.Config) { c.PerOwner = 2 })
	var owners []string
	for range 3 {
		owners = append(owners, receive(t, "a start", started).Pipeline.Owner)
	}
	slices.Sort(owners)
	require.Equal(t, []string{alice, alice, bob}, owners)
	require.Equal(t, 3, d.Running())
	eventually(t, "a reason for the fourth", func() bool {
		s, err := w.Stats(context.Background())
		require.NoError(t, err)
		return s.Waiting == 3
	})
	require.Empty(t, started, "a free seat is no reason to break the cap")
}

// Work that arrives while the dispatcher idles starts because it arrived and not because time has passed.
func TestNewWorkWakesAnIdleDispatcher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	started := make(chan time.Time, 1)
	e := &executor{do: func(_ context.Context, c *store.Claimed) { started <- time.Now(); w.finish(c, pipeline.Passed) }}
	w.run(e) // looks by itself once an hour
	for range 5 {
		before := time.Now()
		id := w.plan(repoA, 1)
		require.Less(t, receive(t, "the start", started).Sub(before), 2*time.Second)
		w.ended(id)
	}
}

// A wake-up that never comes costs the idle period and no job.
func TestLostWakeUpCostsADelay(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	deaf := &jobs{Store: w.Store, changed: func() <-chan struct{} { return nil }}
	e := w.passes()
	w.run(e, with(deaf), func(c *queue.Config) { c.Idle = 5 * time.Second })
	eventually(t, "both to sleep", func() bool { return m.Waiting() == 2 })
	id := w.plan(repoA, 1)
	m.Advance(4 * time.Second)
	require.Equal(t, pipeline.Waiting, w.get(id).Status)
	m.Advance(time.Second)
	require.Equal(t, pipeline.Passed, w.ended(id).Status)
}

func TestFaultsOfTheStoreAreSurvived(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	j := &jobs{Store: w.Store}
	j.claim = func(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error) {
		if j.claims.Load() <= 3 {
			return nil, errors.New("disk I/O error")
		}
		return w.Claim(ctx, r)
	}
	id := w.plan(repoA, 1)
	w.run(w.passes(), with(j), func(c *queue.Config) { c.Idle = time.Second })
	eventually(t, "the end", func() bool { m.Advance(time.Second); return w.get(id).Status.Terminal() })
	require.Equal(t, pipeline.Passed, w.get(id).Status)
	require.GreaterOrEqual(t, j.claims.Load(), int64(4))
}

// B-089: thousands of workflows that no runner here can take delay nothing, and cost nothing once they were
// told why they wait.
func TestB089WhatNobodyTakesDelaysNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var stuck []pipeline.ID
	for range 2 {
		stuck = append(stuck, w.plan(repoA, 1000, func(f *pipeline.Workflow) { f.Engine = "microvm" }))
	}
	j := &jobs{Store: w.Store}
	started := make(chan time.Time, 1)
	e := &executor{do: func(_ context.Context, c *store.Claimed) { started <- time.Now(); w.finish(c, pipeline.Passed) }}
	fit := w.plan(repoA, 1)
	before := time.Now()
	w.run(e, with(j))
	// A fraction of a second; the bound leaves room for a busy machine and a slower build.
	require.Less(t, receive(t, "the one that fits", started).Sub(before), 5*time.Second)
	w.ended(fit)
	eventually(t, "a reason for each", func() bool {
		ws := w.get(stuck[1]).Workflows
		return ws[len(ws)-1].Reason != ""
	})
	for _, f := range w.get(stuck[0]).Workflows {
		require.Contains(t, f.Reason, `no runner offers engine "microvm"`)
	}
	// The dispatcher now sleeps: the number of looks stays what it is.
	var last int64
	eventually(t, "rest", func() bool {
		n := j.claims.Load()
		rest := n == last
		last = n
		time.Sleep(20 * time.Millisecond)
		return rest
	})
	require.Less(t, last, int64(100))
}

// B-085: what waited and what ran when the process died is taken up after the start.
func TestB085RestartTakesUpWhatWasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.plan(repoA, 6)
	// The process dies in its second attempt: nothing more is reported.
	second := make(chan struct{})
	n := 0
	dying := &executor{do: func(ctx context.Context, c *store.Claimed) {
		if n++; n < 2 {
			w.finish(c, pipeline.Passed)
			return
		}
		close(second)
		<-ctx.Done()
	}}
	_, stop := w.run(dying)
	receive(t, "the second attempt", second)
	stop()
	require.NoError(t, w.Close())
	w.open()
	again, failed, err := w.Recover(context.Background(), "local/")
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.Empty(t, failed)
	w.run(w.passes())
	p := w.ended(id)
	require.Equal(t, pipeline.Passed, p.Status)
	attempts := map[int]int{}
	for _, f := range p.Workflows {
		attempts[f.Attempt]++
	}
	require.Equal(t, map[int]int{1: 5, 2: 1}, attempts)
}

// B-087: an attempt whose end is never reported ends with its lease, once.
func TestB087UnreportedEndIsFoundByTheLease(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	id := w.plan(repoA, 1)
	e := &executor{do: func(context.Context, *store.Claimed) {}}
	d, _ := w.run(e, func(c *queue.Config) { c.TTL = time.Minute })
	for attempt := 1; attempt <= 3; attempt++ {
		eventually(t, "the attempt", func() bool { l, _, _ := e.seen(); return len(l) == attempt && d.Running() == 0 })
		require.Equal(t, pipeline.Preparing, w.get(id).Status)
		m.Advance(time.Minute + 6*time.Second)
		_, err := w.Expired(context.Background())
		require.NoError(t, err)
	}
	f := w.ended(id).Workflows[0]
	require.Equal(t, pipeline.Error, f.Status)
	require.Contains(t, f.Reason, "the runner stopped answering")
	leases, _, _ := e.seen()
	require.Len(t, leases, 3, "the bound on attempts holds")
}
