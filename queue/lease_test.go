package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/queue"
	"spindle/store"
)

func minute(c *queue.Config) { c.TTL = time.Minute }

func TestLeaseIsRenewedWhileTheExecutorWorks(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	id := w.plan(repoA, 1)
	started, stopped := make(chan *store.Claimed, 1), make(chan *pipeline.Stop, 1)
	w.run(w.obedient(started, stopped), minute)
	receive(t, "the start", started)
	// Ten minutes of work under a lease of one minute.
	for range 30 {
		until := w.get(id).Workflows[0].LeaseUntil
		eventually(t, "the keeper to sleep", func() bool { return m.Waiting() == 2 })
		m.Advance(20 * time.Second)
		eventually(t, "a renewal", func() bool { return w.get(id).Workflows[0].LeaseUntil.After(until) })
		sw, err := w.Expired(context.Background())
		require.NoError(t, err)
		require.Empty(t, sw.Requeued)
	}
	require.Empty(t, stopped)
	require.Equal(t, 1, w.get(id).Workflows[0].Attempt)
}

// P4: when the lease cannot be renewed the attempt ends before anybody else may begin another.
func TestP4LeaseThatCannotBeRenewedEndsTheAttemptInTime(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	w.plan(repoA, 1)
	j := &jobs{Store: w.Store, renew: func(context.Context, pipeline.Lease, time.Duration) (string, time.Time, error) {
		return "", time.Time{}, errors.New("disk I/O error")
	}}
	started, stopped := make(chan *store.Claimed, 1), make(chan *pipeline.Stop, 1)
	w.run(w.obedient(started, stopped), with(j), minute)
	c := receive(t, "the start", started)
	var s *pipeline.Stop
	eventually(t, "the end", func() bool {
		select {
		case s = <-stopped:
			return true
		default:
			m.Advance(time.Second)
			return false
		}
	})
	require.Equal(t, pipeline.StopStale, s.Kind)
	require.False(t, m.Now().After(c.Lease.Until), "stopped at %s, the lease ends at %s", m.Now(), c.Lease.Until)
}

// One failed renewal is no reason to give an attempt up.
func TestRenewalIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	id := w.plan(repoA, 1)
	fail := make(chan struct{}, 2)
	fail <- struct{}{}
	fail <- struct{}{}
	j := &jobs{Store: w.Store}
	j.renew = func(ctx context.Context, l pipeline.Lease, ttl time.Duration) (string, time.Time, error) {
		select {
		case <-fail:
			return "", time.Time{}, errors.New("database is locked")
		default:
			return w.Renew(ctx, l, ttl)
		}
	}
	started, stopped := make(chan *store.Claimed, 1), make(chan *pipeline.Stop, 1)
	w.run(w.obedient(started, stopped), with(j), minute)
	until := receive(t, "the start", started).Lease.Until
	for _, d := range []time.Duration{20 * time.Second, 4 * time.Second, 4 * time.Second} {
		eventually(t, "the keeper to sleep", func() bool { return m.Waiting() == 2 })
		m.Advance(d)
	}
	eventually(t, "a renewal", func() bool { return w.get(id).Workflows[0].LeaseUntil.After(until) })
	require.Empty(t, fail)
	require.Empty(t, stopped)
}

// A lease that was given to another ends the executor; the two attempts of one workflow do not disturb one
// another while both are in the house.
func TestLostLeaseEndsOnlyTheFormerAttempt(t *testing.T) {
	t.Parallel()
	m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	w := newWorld(t, m)
	id := w.plan(repoA, 1)
	started, stopped := make(chan *store.Claimed, 2), make(chan *pipeline.Stop, 2)
	d, _ := w.run(w.obedient(started, stopped), seats(2), minute)
	require.EqualValues(t, 1, receive(t, "the first attempt", started).Lease.Epoch)
	// Somebody declares the attempt dead; it is claimed again at once, by the very same dispatcher.
	_, _, err := w.Recover(context.Background(), "local/")
	require.NoError(t, err)
	require.EqualValues(t, 2, receive(t, "the second attempt", started).Lease.Epoch)
	require.Equal(t, 2, d.Running())
	eventually(t, "all to sleep", func() bool { return m.Waiting() == 3 })
	m.Advance(20 * time.Second)
	require.Equal(t, pipeline.StopStale, receive(t, "the end of the first", stopped).Kind)
	eventually(t, "the first seat", func() bool { return d.Running() == 1 })
	// The second is still known: a cancel reaches it.
	n, err := w.Cancel(context.Background(), id, nil, alice, "", pipeline.Cancelled)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s := receive(t, "the end of the second", stopped)
	require.Equal(t, pipeline.Stop{Kind: pipeline.StopCancel, By: alice}, *s)
	f := w.ended(id).Workflows[0]
	require.Equal(t, pipeline.Cancelled, f.Status)
	require.Equal(t, "cancelled by "+alice, f.Reason)
}

func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	started := make(chan *store.Claimed, 4)
	id := w.plan(repoA, 2)
	w.run(w.obedient(started, nil))
	c := receive(t, "the first", started)
	_, err := w.Cancel(context.Background(), id, nil, alice, "not needed", pipeline.Cancelled)
	require.NoError(t, err)
	p := w.ended(id)
	require.Equal(t, pipeline.Cancelled, p.Status)
	for _, f := range p.Workflows {
		require.Equal(t, pipeline.Cancelled, f.Status)
		require.Equal(t, "not needed", f.Reason)
		if f.Name != c.Lease.Workflow {
			require.Zero(t, f.Attempt, "what waited never started")
		}
	}
	require.Empty(t, started)
}

// B-096: a cancel needs no seat, and is felt at once although a lease is renewed once in twenty minutes.
func TestB096CancelNeedsNoSeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	started, stopped := make(chan *store.Claimed, 60), make(chan *pipeline.Stop, 60)
	id := w.plan(repoA, 52)
	w.run(w.obedient(started, stopped), seats(2))
	first, second := receive(t, "a start", started), receive(t, "a start", started)
	names := []string{first.Lease.Workflow}
	for _, f := range w.get(id).Workflows {
		if len(names) < 11 && f.Status == pipeline.Waiting {
			names = append(names, f.Name)
		}
	}
	before := time.Now()
	n, err := w.Cancel(context.Background(), id, names, alice, "", pipeline.Cancelled)
	require.NoError(t, err)
	require.Equal(t, 11, n)
	require.Equal(t, pipeline.StopCancel, receive(t, "the end", stopped).Kind)
	require.Less(t, time.Since(before), 2*time.Second)
	receive(t, "the next in the freed seat", started)
	require.Empty(t, stopped)
	for _, f := range w.get(id).Workflows {
		if f.Name == second.Lease.Workflow {
			require.Equal(t, pipeline.Preparing, f.Status, "the other goes on")
		}
	}
}

// B-093: a cancel that falls between the claim and the start is not missed, even when the change was read
// before the seat was taken.
func TestB093CancelBetweenClaimAndStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.plan(repoA, 1)
	j := &jobs{Store: w.Store}
	j.claim = func(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error) {
		c, err := w.Claim(ctx, r)
		if c == nil || err != nil {
			return c, err
		}
		if _, err := w.Cancel(ctx, id, nil, alice, "", pipeline.Cancelled); err != nil {
			return nil, err
		}
		last, err := w.LastChange(ctx)
		eventually(t, "the watcher to have read the cancel", func() bool { return j.read.Load() >= last })
		return c, err
	}
	stopped := make(chan *pipeline.Stop, 1)
	w.run(w.obedient(nil, stopped), with(j))
	require.Equal(t, pipeline.StopCancel, receive(t, "the end", stopped).Kind)
	require.Equal(t, pipeline.Cancelled, w.ended(id).Status)
}

func TestDrainWaitsForWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.plan(repoA, 2)
	started, goOn := make(chan struct{}, 2), make(chan struct{})
	e := &executor{do: func(ctx context.Context, c *store.Claimed) {
		started <- struct{}{}
		<-goOn
		if ctx.Err() != nil {
			t.Error("a drain that lasts ended the executor")
		}
		w.finish(c, pipeline.Passed)
	}}
	_, cancel, wait := w.start(e, func(c *queue.Config) { c.Drain = time.Hour })
	receive(t, "the start", started)
	cancel()
	close(goOn)
	wait()
	p := w.get(id)
	require.Equal(t, pipeline.Passed, p.Workflows[0].Status)
	require.Empty(t, started)
}

// A drain that is over stops what runs; it is handed back and taken up by the next process.
func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"at once": 0, "after a while": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
			w := newWorld(t, m)
			id := w.plan(repoA, 2)
			started, stopped := make(chan *store.Claimed, 2), make(chan *pipeline.Stop, 2)
			_, cancel, wait := w.start(w.obedient(started, stopped), func(c *queue.Config) { c.Drain = drain })
			receive(t, "the start", started)
			cancel()
			if drain > 0 {
				// The keeper, the watcher and the drain sleep.
				eventually(t, "the drain", func() bool { return m.Waiting() == 3 })
				require.Empty(t, stopped)
				m.Advance(drain)
			}
			require.Equal(t, pipeline.StopDrain, receive(t, "the stop", stopped).Kind)
			wait()
			for _, f := range w.get(id).Workflows {
				require.Equal(t, pipeline.Waiting, f.Status)
			}
			w.run(w.passes())
			p := w.ended(id)
			require.Equal(t, pipeline.Passed, p.Status)
		})
	}
}

// A claim that was on its way when the process was told to stop is not forgotten: its lease would block the
// workflow until it ran out.
func TestClaimDuringShutdownIsHandedBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.plan(repoA, 1)
	asked, goOn := make(chan struct{}), make(chan struct{})
	j := &jobs{Store: w.Store}
	j.claim = func(ctx context.Context, r store.ClaimRequest) (*store.Claimed, error) {
		close(asked)
		<-goOn
		return w.Claim(ctx, r)
	}
	stopped := make(chan *pipeline.Stop, 1)
	e := w.obedient(nil, stopped)
	_, cancel, wait := w.start(e, with(j))
	receive(t, "the claim", asked)
	cancel()
	close(goOn)
	wait()
	require.Equal(t, pipeline.StopDrain, receive(t, "the stop", stopped).Kind)
	f := w.get(id).Workflows[0]
	require.Equal(t, pipeline.Waiting, f.Status)
	require.Equal(t, 1, f.Attempt)
}

func TestRunEndsWhenTheFeedCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.NoError(t, w.Close())
	e := w.passes()
	_, stop := w.run(e)
	stop()
	leases, _, _ := e.seen()
	require.Empty(t, leases)
	w.open()
}
