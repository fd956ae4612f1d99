package trigger

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
	"spindle/workflow"
)

const (
	timedRepo = "did:plc:repoarepoarepoarepoarep2"
	timedBoss = "did:plc:bossbossbossbossbossboss"
)

// heads is a knot with one branch.
type heads struct {
	sha   string
	files map[string]string
	fail  error
}

func (h *heads) Locate(_ context.Context, repo string) (knot.Source, error) {
	return knot.Source{Repo: repo}, h.fail
}

func (h *heads) ResolveRef(_ context.Context, _ knot.Source, ref string) (string, error) {
	if ref != "refs/heads/main" {
		return "", errors.New("only main is asked for")
	}
	return h.sha, nil
}

func (h *heads) Workflows(context.Context, knot.Source, string) (knot.Files, error) {
	var out knot.Files
	for name, data := range h.files {
		out.Files = append(out.Files, knot.File{Path: dir + name, Data: []byte(data)})
	}
	return out, nil
}

// timed is a scheduler over a real store, with a clock that only the test moves.
type timed struct {
	t     *testing.T
	path  string
	clock *clock.Manual
	store *store.Store
	heads *heads
	s     *Scheduler
}

func newTimed(t *testing.T, start time.Time, tables ...string) *timed {
	t.Helper()
	x := &timed{t: t, path: filepath.Join(t.TempDir(), "spindle.db"), clock: clock.NewManual(start), heads: &heads{sha: sha("1")}}
	x.heads.files = map[string]string{"nightly.yml": cronFile(tables...)}
	x.open()
	t.Cleanup(func() {
		if x.store != nil {
			require.NoError(t, x.store.Close())
		}
	})
	_, err := x.store.Accept(context.Background(), store.Effects{Repos: []store.RepoBinding{{
		Repo: timedRepo, Owner: timedBoss, Rkey: "self", Name: "hello", Knot: "knot.test", DefaultBranch: "main", VerifiedAt: start,
	}}})
	require.NoError(t, err)
	return x
}

func (x *timed) open() {
	x.t.Helper()
	s, err := store.Open(context.Background(), store.Config{Path: x.path, Clock: x.clock, Admission: rbac.Open, Owner: timedBoss})
	require.NoError(x.t, err)
	x.store = s
	x.s = NewScheduler(SchedulerConfig{
		Store: x.store, Heads: x.heads, Clock: x.clock, Log: slog.New(slog.DiscardHandler), Limits: workflow.DefaultLimits(),
	})
}

func (x *timed) restart() {
	x.t.Helper()
	require.NoError(x.t, x.store.Close())
	x.store = nil
	x.open()
}

// at sets the clock, looks, and returns the due times that were taken by this look.
func (x *timed) at(now time.Time) (slots []time.Time) {
	x.t.Helper()
	x.clock.Advance(now.Sub(x.clock.Now()))
	x.s.Tick(context.Background())
	for {
		es, err := x.store.NextEvents(context.Background(), 1000)
		require.NoError(x.t, err)
		if len(es) == 0 {
			return slots
		}
		for _, e := range es {
			require.Equal(x.t, pipeline.Schedule, e.Trigger.Kind)
			require.Equal(x.t, "refs/heads/main", e.Trigger.Ref)
			require.Equal(x.t, []string{"nightly"}, e.Trigger.Only)
			slots = append(slots, e.Trigger.At.UTC())
			require.NoError(x.t, x.store.SettleEvent(context.Background(), e.ID, store.EventSkipped, "test"))
		}
	}
}

func sha(c string) string { return strings.Repeat(c, 40) }

func cronFile(tables ...string) string {
	var b strings.Builder
	b.WriteString("when:\n  - event: schedule\n    schedule:\n")
	for _, t := range tables {
		cron, zone, _ := strings.Cut(t, "|")
		b.WriteString("      - cron: \"" + cron + "\"\n")
		if zone != "" {
			b.WriteString("        timezone: " + zone + "\n")
		}
	}
	b.WriteString("engine: dummy\nclone: {skip: true}\nsteps:\n  - command: echo x\n")
	return b.String()
}

// A year of a server that looks now and then and is restarted every month: every night once, at the wall
// clock's hour, also across the days on which that is moved.
func TestSchedulesOverAYear(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := newTimed(t, start, "15 4 * * *|Europe/Paris")
	paris, err := time.LoadLocation("Europe/Paris")
	require.NoError(t, err)
	days := map[string]int{}
	month := start.Month()
	for now := start; now.Before(start.AddDate(1, 0, 0)); now = now.Add(75 * time.Minute) {
		for _, slot := range x.at(now) {
			local := slot.In(paris)
			require.Equal(t, "04:15", local.Format("15:04"))
			require.Less(t, now.Sub(slot), 75*time.Minute)
			days[local.Format(time.DateOnly)]++
		}
		if now.Month() != month {
			month = now.Month()
			x.restart()
		}
	}
	require.GreaterOrEqual(t, len(days), 364)
	for day, n := range days {
		require.Equal(t, 1, n, day)
	}
	for _, day := range []string{"2026-03-29", "2026-10-25"} {
		require.Contains(t, days, day)
	}
}

// What was missed is made up for once, by the newest, however long the server was down.
func TestSchedulesCatchUpOnce(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 6, 1, 0, 0, 30, 0, time.UTC)
	x := newTimed(t, start, "*/5 * * * *")
	require.Empty(t, x.at(start))
	require.Equal(t, []time.Time{start.Truncate(time.Minute).Add(5 * time.Minute)}, x.at(start.Add(5*time.Minute)))
	x.restart()
	later := start.AddDate(0, 3, 0)
	require.Equal(t, []time.Time{later.Truncate(time.Minute)}, x.at(later))
	require.Empty(t, x.at(later))
	require.Len(t, x.at(later.Add(5*time.Minute)), 1)
}

// A clock that is set a year ahead costs one run, and set back again nothing: no due time comes twice, none is lost.
func TestSchedulesStandAClockThatJumps(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	x := newTimed(t, start, "0 3 * * *")
	require.Empty(t, x.at(start))
	require.Len(t, x.at(start.AddDate(1, 0, 0)), 1)
	require.Empty(t, x.at(start.AddDate(1, 0, 0)))
	require.Empty(t, x.at(start))
	for day := 1; day <= 3; day++ {
		require.Equal(t, []time.Time{time.Date(2026, 6, 1+day, 3, 0, 0, 0, time.UTC)}, x.at(time.Date(2026, 6, 1+day, 3, 1, 0, 0, time.UTC)))
	}
	back := time.Date(2025, 6, 3, 3, 1, 0, 0, time.UTC)
	require.Empty(t, x.at(back))
	require.Len(t, x.at(back.AddDate(0, 0, 1)), 1)
	x.restart()
	require.Empty(t, x.at(time.Date(2026, 6, 4, 3, 1, 0, 0, time.UTC).Add(-time.Second*61)), "the catch-up of the newest was taken before")
	require.Len(t, x.at(time.Date(2026, 6, 5, 3, 1, 0, 0, time.UTC)), 1)
}

// The head is read when the time has come: a table that is gone starts nothing, a broken file does not repeat, and a
// knot that does not answer is asked again.
func TestSchedulesFollowTheHead(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	x := newTimed(t, start, "0 * * * *")
	require.Empty(t, x.at(start.Add(time.Second)))
	x.heads.fail = errors.New("no answer")
	require.Empty(t, x.at(start.Add(time.Hour)))
	x.heads.fail = nil
	require.Empty(t, x.at(start.Add(time.Hour)), "it is left alone for a moment")
	require.Len(t, x.at(start.Add(time.Hour+5*time.Second)), 1)
	x.heads.files["nightly.yml"] = "when: [{event: schedule"
	require.Empty(t, x.at(start.Add(2*time.Hour)))
	list, err := x.store.Schedules(context.Background(), timedRepo)
	require.NoError(t, err)
	require.Empty(t, list)
}

// H spreads: two workflows with one table are not due at one moment, and each keeps its own.
func TestSchedulesAreSpread(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	seen := map[time.Time]bool{}
	for _, name := range []string{"a", "b", "c", "d"} {
		s := store.Schedule{Repo: timedRepo, Workflow: name, Cron: "H H * * *", Zone: "UTC"}
		seen[next(s, now)] = true
		require.Equal(t, next(s, now), next(s, now))
	}
	require.Greater(t, len(seen), 2)
}
