package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

func TestSecondInstanceIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := Open(b.ctx(), b.config())
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since 2026-09-01T12:00:00Z; stop that one first", os.Getpid()))
	b.reopen()
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		st, err := os.Stat(b.path + suffix)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), st.Mode().Perm(), suffix)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.write(b.ctx(), "future", func(t *tx) error {
		return t.exec1("INSERT INTO goose_db_version (version_id, is_applied) VALUES (31, 1)")
	}))
	require.NoError(t, b.Close())
	b.Store = nil
	_, err := Open(b.ctx(), b.config())
	require.ErrorIs(t, err, ErrNewer)
	require.Regexp(t, `its schema is 31, this binary knows up to \d+`, err.Error())
}

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]Config{
		"no path":   {Owner: boss},
		"no owner":  {Path: filepath.Join(dir, "a.db")},
		"bad owner": {Path: filepath.Join(dir, "b.db"), Owner: "boss"},
		"admission": {Path: filepath.Join(dir, "c.db"), Owner: boss, Admission: "ajar"},
		"negative":  {Path: filepath.Join(dir, "d.db"), Owner: boss, HoldFor: -1},
		"a folder":  {Path: dir, Owner: boss},
	} {
		_, err := Open(context.Background(), c)
		require.Error(t, err, name)
	}
	s, err := Open(context.Background(), Config{Path: filepath.Join(dir, "new", "odd name?#%41.db"), Owner: boss})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "new", "odd name?#%41.db"))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), ErrClosed)
	require.ErrorIs(t, s.Ping(context.Background()), ErrClosed)
}

// P12: after an unclean stop a damaged page is found before anything is served.
func TestP12DamageIsDetected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	for range 30 {
		b.mustPlan(repoA, alice, b.ids.Next(), flow("test", pipeline.Waiting))
	}
	require.NoError(t, b.Close())
	b.Store = nil
	whole, err := os.ReadFile(b.path)
	require.NoError(t, err)
	unclean := func(content []byte) string {
		p := filepath.Join(t.TempDir(), "d.db")
		require.NoError(t, os.WriteFile(p, content, 0o600))
		return p
	}
	// A copy that was not closed: the flag is in the state row.
	c := b.config()
	c.Path = unclean(whole)
	s, err := Open(b.ctx(), c)
	require.NoError(t, err)
	require.NoError(t, s.write(b.ctx(), "x", func(*tx) error { return nil }))
	require.NoError(t, s.shut()) // without marking it clean
	require.NoError(t, s.lock.Release())
	whole, err = os.ReadFile(c.Path)
	require.NoError(t, err)

	const page = 4096
	refused := 0
	pages := len(whole) / page
	step := max(1, pages/25)
	for i := 0; i < pages; i += step {
		hurt := bytes.Clone(whole)
		clear(hurt[i*page : (i+1)*page])
		c.Path = unclean(hurt)
		s, err := Open(b.ctx(), c)
		if err == nil {
			require.NoError(t, s.Close())
			t.Errorf("page %d of %d was lost and nobody noticed", i+1, pages)
			continue
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("page %d: %v", i+1, err)
		}
		refused++
	}
	t.Logf("%d pages zeroed one at a time, %d refused", (pages+step-1)/step, refused)
	for _, content := range []string{"not a database at all, but long enough to be read as one........", strings.Repeat("\x00\xff", 8192)} {
		c.Path = unclean([]byte(content))
		_, err := Open(b.ctx(), c)
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

// P12: a trigger whose bytes changed is not planned.
func TestP12ChangedTriggerIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	tr := b.trigger(repoA, alice, "main")
	a, err := b.Accept(b.ctx(), Effects{Event: &tr})
	require.NoError(t, err)
	require.NoError(t, b.write(b.ctx(), "change", func(t *tx) error {
		return t.exec1("UPDATE events SET body = replace(body, 'main', 'evil')")
	}))
	_, err = b.NextEvents(b.ctx(), 1)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: "x", Repo: repoA, Owner: alice}})
	require.ErrorIs(t, err, ErrCorrupt)
}

// T48: the trail only grows, and a hand on the file is found.
func TestT48AuditTrail(t *testing.T) {
	t.Parallel()
	hurt := map[string]string{
		"changed":   "UPDATE audit SET actor = 'did:plc:nobody' WHERE seq = 2",
		"deleted":   "DELETE FROM audit WHERE seq = 2",
		"reordered": "UPDATE audit SET seq = -seq; UPDATE audit SET seq = CASE -seq WHEN 2 THEN 3 WHEN 3 THEN 2 ELSE -seq END",
	}
	for name, q := range hurt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for _, d := range []string{alice, bob, carol} {
				require.NoError(t, b.Audit(b.ctx(), AuditRow{Actor: d, Action: "test", Object: "x"}))
			}
			require.NoError(t, b.AuditVerify(b.ctx()))
			qs := strings.Split(q, "; ")
			for _, q := range qs[:1] {
				err := b.write(b.ctx(), "tamper", func(t *tx) error { _, err := t.exec(q); return err })
				require.ErrorContains(t, err, "only grows")
			}
			require.NoError(t, b.write(b.ctx(), "tamper", func(t *tx) error {
				for _, q := range append([]string{"DROP TRIGGER audit_no_update", "DROP TRIGGER audit_no_delete"}, qs...) {
					if _, err := t.exec(q); err != nil {
						return err
					}
				}
				return nil
			}))
			require.ErrorIs(t, b.AuditVerify(b.ctx()), ErrCorrupt)
			require.NoError(t, b.Close())
			b.Store = nil
			_, err := Open(b.ctx(), b.config())
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	b := newBench(t)
	require.NoError(t, b.Close())
	b.Store = nil
	_, err := Open(b.ctx(), b.config(func(c *Config) { c.AuditKey = []byte("another") }))
	require.ErrorIs(t, err, ErrCorrupt, "a forger without the key")
}

func TestTerminalStatusNeverChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	b.mustPlan(repoA, alice, "main", flow("bad", pipeline.Invalid))
	for _, q := range []string{"UPDATE workflows SET status = 'passed'", "UPDATE workflows SET reason = 'x'", "DELETE FROM workflows"} {
		err := b.write(b.ctx(), "change", func(t *tx) error { _, err := t.exec(q); return err })
		require.Error(t, err, q)
	}
	err := b.write(b.ctx(), "unknown", func(t *tx) error { _, err := t.exec("UPDATE pipelines SET status = 'great'"); return err })
	require.ErrorContains(t, err, "CHECK")
}

// Writes that share a commit fail alone, and the change numbers stay in order.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	commits, writes := 0, 0
	b := newBench(t, func(c *Config) {
		c.Committed = func(n int, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			commits, writes = commits+1, writes+n
		}
	})
	b.bind(repoA, alice)
	hold := make(chan struct{})
	started := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = b.write(b.ctx(), "hold", func(*tx) error { close(started); <-hold; return nil })
	})
	<-started
	mu.Lock()
	commits, writes = 0, 0
	mu.Unlock()
	bad := errors.New("bad")
	ctx, cancel := context.WithCancel(b.ctx())
	errs := make([]error, 60)
	for i := range errs {
		wg.Go(func() {
			c := b.ctx()
			if i%10 == 3 {
				c = ctx
			}
			errs[i] = b.write(c, "one", func(t *tx) error {
				if err := t.change("p", repoA, fmt.Sprint(i), -1, pipeline.Waiting, "", 0); err != nil {
					return err
				}
				if i%10 == 7 {
					return bad
				}
				return nil
			})
		})
	}
	require.Eventually(t, func() bool { return len(b.w.queue) == len(errs) }, 5*time.Second, time.Millisecond)
	cancel()
	close(hold)
	wg.Wait()
	want := 0
	for i, err := range errs {
		switch i % 10 {
		case 7:
			require.ErrorIs(t, err, bad)
		case 3:
			require.ErrorIs(t, err, context.Canceled)
		default:
			require.NoError(t, err)
			want++
		}
	}
	cs, err := b.Changes(b.ctx(), 0, 1000)
	require.NoError(t, err)
	require.Len(t, cs, want)
	for i, c := range cs {
		require.Equal(t, int64(i+1), c.Number)
		require.NotContains(t, "37", c.Workflow[len(c.Workflow)-1:], "a failed write left something")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 2, commits, "the held write and one batch; wrote %d", writes)
}

// A reader that takes Changed before it reads misses nothing.
func TestNoChangeIsMissed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	const n = 50
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			b.mustPlan(repoA, alice, b.ids.Next(), flow("a", pipeline.Waiting))
		}
	})
	var at int64
	deadline := time.After(30 * time.Second)
	for seen := 0; seen < n; {
		rang := b.Changed()
		cs, err := b.Changes(b.ctx(), at, 7)
		require.NoError(t, err)
		for _, c := range cs {
			require.Equal(t, at+1, c.Number, "a gap would mean a later commit was seen first")
			at = c.Number
			if c.Workflow == "" {
				seen++
			}
		}
		if len(cs) == 0 {
			select {
			case <-rang:
			case <-deadline:
				t.Fatal("nothing rang")
			}
		}
	}
	wg.Wait()
}

// SQL's own clock would escape the configured one.
func TestNoTimeInSQL(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`(?i)unixepoch|julianday|strftime|current_timestamp|current_time|datetime\(|date\('`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	more, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	for _, f := range append(files, more...) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.False(t, bad.Match(text), f)
	}
}
