package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/feed"
	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	alice    = "did:plc:alicealicealicealiceali2"
	repo     = "did:plc:repoarepoarepoarepoarep2"
	patience = time.Minute
)

// world is a real store in which pipelines begin and end.
type world struct {
	*store.Store
	t    testing.TB
	ids  *tid.Source
	keys int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, ids: tid.New(clock.Real{})}
	s, err := store.Open(context.Background(), store.Config{Path: filepath.Join(t.TempDir(), "spindle.db"), Admission: rbac.Open, Owner: alice})
	require.NoError(t, err)
	w.Store = s
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Accept(context.Background(), store.Effects{Repos: []store.RepoBinding{{
		Repo: repo, Owner: alice, Rkey: "self", Name: "hello", Knot: "knot.example", VerifiedAt: time.Now(),
	}}})
	require.NoError(t, err)
	return w
}

// change makes n+1 changes: a pipeline of n workflows that ended as they were born.
func (w *world) change(n int) {
	w.t.Helper()
	w.keys++
	tr := pipeline.Trigger{
		Key: fmt.Sprintf("key-%d", w.keys), Kind: pipeline.Push, Repo: repo, Actor: alice,
		Ref: fmt.Sprintf("refs/heads/b%d", w.keys), Commit: fmt.Sprintf("%040x", w.keys),
	}
	a, err := w.Accept(context.Background(), store.Effects{Event: &tr})
	require.NoError(w.t, err)
	var ws []pipeline.Workflow
	for i := range n {
		ws = append(ws, pipeline.Workflow{Name: fmt.Sprintf("w%d", i), Status: pipeline.Skipped, Reason: "not on this branch"})
	}
	_, err = w.Enqueue(context.Background(), store.Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{
		ID: pipeline.ID(w.ids.Next()), Repo: repo, Owner: alice, Trust: pipeline.TrustBranch, Workflows: ws,
	}})
	require.NoError(w.t, err)
}

// read follows f from after until it has seen the change with that number, and returns the numbers seen.
func read(t testing.TB, f *feed.Feed, after, last int64) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var seen []int64
	for after < last {
		cs, err := f.Next(ctx, after)
		if err != nil {
			t.Errorf("read after %d: %v", after, err)
			return seen
		}
		for _, c := range cs {
			seen = append(seen, c.Number)
			after = c.Number
		}
	}
	return seen
}

func numbers(from, to int64) []int64 {
	var out []int64
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

func TestReaderSeesEveryChangeOnceInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(9)
	f := feed.New(w.Store, 4)
	last, err := f.Last(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 10, last)
	require.Equal(t, numbers(1, 10), read(t, f, 0, last))
	cs, err := f.Next(context.Background(), 0)
	require.NoError(t, err)
	require.Len(t, cs, 4, "a batch is bounded")
	require.Equal(t, pipeline.Skipped, cs[1].Status)
	require.Equal(t, "w0", cs[1].Workflow)
	require.Equal(t, "not on this branch", cs[1].Reason)
	require.Equal(t, -1, cs[1].Step)
	require.Equal(t, repo, cs[1].Repo)
}

// Readers of every pace and age, while changes are made: each sees what came after its number, once, in order.
// A reader that sleeps holds up nobody and loses nothing.
func TestReadersDoNotDisturbOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(20)
	f := feed.New(w.Store, 7)
	const last = 21 + 50*2
	slow := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 20 {
		from := int64(i)
		wg.Go(func() {
			if i%5 == 0 {
				<-slow
			}
			require.Equal(t, numbers(from+1, last), read(t, f, from, last))
		})
	}
	for range 50 {
		w.change(1)
	}
	close(slow)
	wg.Wait()
}

// A reader that lost its connection, or whose server was restarted, goes on at its number.
func TestResumeAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(4)
	require.Equal(t, numbers(1, 5), read(t, feed.New(w.Store, 0), 0, 5))
	w.change(4)
	require.Equal(t, numbers(6, 10), read(t, feed.New(w.Store, 0), 5, 10))
	require.Equal(t, numbers(4, 10), read(t, feed.New(w.Store, 0), 3, 10), "an older number gives the older changes again")
}

func TestNextWaitsForAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(0)
	f := feed.New(w.Store, 0)
	got := make(chan []pipeline.Change, 1)
	go func() {
		cs, err := f.Next(context.Background(), 1)
		if err != nil {
			t.Error(err)
		}
		got <- cs
	}()
	select {
	case cs := <-got:
		t.Fatalf("there is no change after the first: %v", cs)
	case <-time.After(30 * time.Millisecond):
	}
	w.change(0)
	select {
	case cs := <-got:
		require.EqualValues(t, 2, cs[0].Number)
	case <-time.After(patience):
		t.Fatal("the change did not wake the reader")
	}
}

// source is a store whose verbs a test writes.
type source struct {
	changes func(after int64, limit int) ([]pipeline.Change, error)
	changed func() <-chan struct{}
	last    error
}

func (s source) Changes(_ context.Context, after int64, limit int) ([]pipeline.Change, error) {
	return s.changes(after, limit)
}
func (s source) Changed() <-chan struct{}                  { return s.changed() }
func (s source) LastChange(context.Context) (int64, error) { return 0, s.last }

// counted is a store that counts the looks into it.
type counted struct {
	*store.Store
	looks atomic.Int64
}

func (c *counted) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	c.looks.Add(1)
	return c.Store.Changes(ctx, after, limit)
}

// T35: a thousand readers that wait cost the store as much as one.
func TestT35ManyReadersLookOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &counted{Store: w.Store}
	f := feed.New(c, 0)
	const readers, changes = 1000, 10
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() { require.Equal(t, numbers(1, changes), read(t, f, 0, changes)) })
	}
	for range changes {
		w.change(0)
	}
	wg.Wait()
	// Those that came before the first look read for themselves if it found something already.
	require.Less(t, c.looks.Load(), int64(readers+10*changes))
	before := c.looks.Load()
	for range readers {
		wg.Go(func() { require.Equal(t, numbers(changes+1, 2*changes), read(t, f, changes, 2*changes)) })
	}
	for range changes {
		w.change(0)
	}
	wg.Wait()
	require.Less(t, c.looks.Load()-before, int64(10*changes))
}

// More changes at once than the tail holds, readers on both sides of it, and one with a number that was never
// given: all see what they should.
func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := feed.New(w.Store, 0)
	w.change(9)
	require.Equal(t, numbers(6, 10), read(t, f, 5, 10))
	ctx, cancel := context.WithCancel(context.Background())
	future := make(chan error, 1)
	go func() { _, err := f.Next(ctx, math.MaxInt64); future <- err }()
	for range 3 {
		w.change(999) // more than the tail holds in all, and less at a time
		last, err := f.Last(context.Background())
		require.NoError(t, err)
		require.Equal(t, numbers(last-4, last), read(t, f, last-5, last))
	}
	w.change(999)
	w.change(999)
	const last = 10 + 5*1000
	require.Equal(t, numbers(last-9, last), read(t, f, last-10, last), "the tail begins anew")
	require.Equal(t, numbers(1, last), read(t, f, 0, last), "from the very beginning")
	require.Equal(t, numbers(11, last), read(t, f, 10, last))
	w.change(0)
	require.Equal(t, numbers(last+1, last+1), read(t, f, last, last+1))
	cancel()
	require.ErrorIs(t, <-future, context.Canceled)
}

// B-074: a change that is made between the look and the wait is not missed: the wake-up is taken before the look.
func TestB074ChangeBetweenLookAndWait(t *testing.T) {
	t.Parallel()
	bell := make(chan struct{})
	looks := 0
	f := feed.New(source{
		changed: func() <-chan struct{} { return bell },
		changes: func(int64, int) ([]pipeline.Change, error) {
			if looks++; looks == 1 {
				close(bell) // the change commits just after the look
				bell = make(chan struct{})
				return nil, nil
			}
			return []pipeline.Change{{Number: 1}}, nil
		},
	}, 0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cs, err := f.Next(ctx, 0)
	require.NoError(t, err)
	require.Len(t, cs, 1)
}

func TestNextEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := feed.New(w.Store, 0)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { _, err := f.Next(ctx, 0); done <- err }()
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		t.Fatal("the end of the context does not end the wait")
	}
	broken := feed.New(source{
		changed: func() <-chan struct{} { return nil },
		changes: func(int64, int) ([]pipeline.Change, error) { return nil, store.ErrCorrupt },
	}, 0)
	_, err := broken.Next(context.Background(), 7)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, "read changes after 7")
	blind := feed.New(source{changed: func() <-chan struct{} { return nil }, last: errors.New("disk I/O error")}, 0)
	_, err = blind.Last(context.Background())
	require.ErrorContains(t, err, "disk I/O error")
	_, err = blind.Next(context.Background(), 0)
	require.ErrorContains(t, err, "disk I/O error")
}

// BenchmarkFanOut is the time from one change to the last of a thousand readers that wait for it.
func BenchmarkFanOut(b *testing.B) {
	for _, readers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			w := newWorld(b)
			f := feed.New(w.Store, 0)
			ctx, cancel := context.WithCancel(context.Background())
			var arrived atomic.Int64
			var wg sync.WaitGroup
			all := make(chan struct{})
			for range readers {
				wg.Go(func() {
					after := int64(0)
					for {
						cs, err := f.Next(ctx, after)
						if err != nil {
							return
						}
						after = cs[len(cs)-1].Number
						if arrived.Add(1)%int64(readers) == 0 {
							all <- struct{}{}
						}
					}
				})
			}
			var took time.Duration
			n := 0
			for b.Loop() {
				w.change(0)
				before := time.Now()
				<-all
				took += time.Since(before)
				n++
			}
			b.ReportMetric(float64(took.Microseconds())/float64(n), "µs/change")
			cancel()
			wg.Wait()
		})
	}
}
