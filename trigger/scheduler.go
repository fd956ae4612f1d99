package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"spindle/internal/clock"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// Timetables is where the time tables are kept: the store.
type Timetables interface {
	Repo(ctx context.Context, did string) (store.RepoBinding, bool, error)
	PutSchedules(ctx context.Context, repo, sha string, list []store.Schedule) error
	DueSchedules(ctx context.Context, now time.Time, limit int) ([]store.Schedule, error)
	LaterSchedules(ctx context.Context, now time.Time) ([]store.Schedule, error)
	UnreadTimetables(ctx context.Context, limit int) ([]string, error)
	MoveSchedule(ctx context.Context, x store.Schedule, next time.Time) error
	TakeSchedule(ctx context.Context, x store.Schedule, tr pipeline.Trigger, next time.Time) error
}

// Heads reads default branches at their knots.
type Heads interface {
	Locate(ctx context.Context, repo string) (knot.Source, error)
	ResolveRef(ctx context.Context, src knot.Source, ref string) (string, error)
	Workflows(ctx context.Context, src knot.Source, sha string) (knot.Files, error)
}

// SchedulerConfig is what a Scheduler needs. All fields but Limits and Every are required.
type SchedulerConfig struct {
	Store  Timetables
	Heads  Heads
	Clock  clock.Clock
	Log    *slog.Logger
	Limits workflow.Limits
	// Every is how often it looks; 0 means 10 s.
	Every time.Duration
}

// Scheduler starts workflows when their time has come. Each due time is taken once; of those that passed while the
// server was down, or that a jump of the clock passed over, the newest is made up for and no other. Make it with
// NewScheduler and call Run once.
type Scheduler struct {
	c SchedulerConfig
	// seen is the latest time that was looked at, and wait until when a repository is left alone that did not answer.
	seen time.Time
	wait map[string]pause
}

type pause struct {
	tries int
	until time.Time
}

// NewScheduler returns a scheduler.
func NewScheduler(c SchedulerConfig) *Scheduler {
	if c.Every <= 0 {
		c.Every = 10 * time.Second
	}
	return &Scheduler{c: c, wait: map[string]pause{}}
}

// Run starts what is due until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		s.Tick(ctx)
		if s.c.Clock.Sleep(ctx, s.c.Every) != nil {
			return nil
		}
	}
}

// dueAtOnce bounds how many due times one look takes; the others come with the next.
const dueAtOnce = 200

// Tick looks once. Faults are logged, and what they concern is tried again.
func (s *Scheduler) Tick(ctx context.Context) {
	now := s.c.Clock.Now().UTC()
	if s.seen.IsZero() || now.Before(s.seen.Add(-s.c.Every)) {
		// The clock was set back, perhaps while the server was down: what stands in a future that was none is due
		// earlier.
		if err := s.realign(ctx, now); err != nil {
			s.fault(ctx, "look through the schedules", err)
			return
		}
		clear(s.wait)
	}
	s.seen = now
	s.read(ctx, now)
	due, err := s.c.Store.DueSchedules(ctx, now, dueAtOnce)
	if err != nil {
		s.fault(ctx, "read what is due", err)
		return
	}
	for i := 0; i < len(due); {
		n := 1
		for i+n < len(due) && due[i+n].Repo == due[i].Repo {
			n++
		}
		s.attempt(ctx, due[i].Repo, now, func() error { return s.take(ctx, due[i:i+n], now) })
		i += n
	}
}

func (s *Scheduler) fault(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.c.Log.Error(what, "err", err)
	}
}

// realign brings forward what is due later than its time table says.
func (s *Scheduler) realign(ctx context.Context, now time.Time) error {
	later, err := s.c.Store.LaterSchedules(ctx, now)
	if err != nil {
		return err
	}
	for _, x := range later {
		if n := next(x, now); !n.IsZero() && n.Before(x.Next) {
			if err := s.c.Store.MoveSchedule(ctx, x, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// attempt calls f unless the repository is left alone, and leaves it alone for a while when f fails.
func (s *Scheduler) attempt(ctx context.Context, repo string, now time.Time, f func() error) {
	p := s.wait[repo]
	if now.Before(p.until) || ctx.Err() != nil {
		return
	}
	err := f()
	if err == nil {
		delete(s.wait, repo)
		return
	}
	p.until = now.Add(backOff(p.tries))
	p.tries++
	s.wait[repo] = p
	s.c.Log.Warn("the schedules of a repository wait", "repo", repo, "until", p.until, "err", err)
}

// read reads the time tables of repositories that never pushed since they are served here.
func (s *Scheduler) read(ctx context.Context, now time.Time) {
	repos, err := s.c.Store.UnreadTimetables(ctx, 1000)
	if err != nil {
		s.fault(ctx, "read which repositories have no time tables", err)
		return
	}
	for _, did := range repos {
		s.attempt(ctx, did, now, func() error {
			_, _, err := s.refresh(ctx, did, now)
			return err
		})
	}
}

// refresh reads the time tables at the head of the default branch. An empty branch, or none, has none.
func (s *Scheduler) refresh(ctx context.Context, did string, now time.Time) (b store.RepoBinding, head string, err error) {
	b, ok, err := s.c.Store.Repo(ctx, did)
	if err != nil || !ok || b.Gone {
		return b, "", err
	}
	src, err := s.c.Heads.Locate(ctx, did)
	if err != nil {
		return b, "", fmt.Errorf("find the knot of %s: %w", did, err)
	}
	ref := "HEAD"
	if b.DefaultBranch != "" {
		ref = "refs/heads/" + b.DefaultBranch
	}
	head, err = s.c.Heads.ResolveRef(ctx, src, ref)
	if errors.Is(err, knot.ErrRefGone) {
		return b, "", s.c.Store.PutSchedules(ctx, did, "", nil)
	}
	if err != nil {
		return b, "", err
	}
	files, err := s.c.Heads.Workflows(ctx, src, head)
	if err != nil {
		return b, "", fmt.Errorf("read the workflow files of %s: %w", head, err)
	}
	return b, head, s.c.Store.PutSchedules(ctx, did, head, timetable(did, files, s.c.Limits, now))
}

// take takes the due times of one repository. What its files have no time table for any more is dropped.
func (s *Scheduler) take(ctx context.Context, due []store.Schedule, now time.Time) error {
	b, head, err := s.refresh(ctx, due[0].Repo, now)
	if err != nil || head == "" {
		return err
	}
	for _, x := range due {
		slot := newest(x, now)
		tr := pipeline.Trigger{
			Key:  strings.Join([]string{"schedule", x.Repo, x.Workflow, x.Cron, x.Zone, strconv.FormatInt(slot.Unix(), 10)}, ":"),
			Kind: pipeline.Schedule, Repo: x.Repo, ActorSource: pipeline.FromServer, Commit: head, Only: []string{x.Workflow}, At: slot,
		}
		if b.DefaultBranch != "" {
			tr.Ref = "refs/heads/" + b.DefaultBranch
		}
		err := s.c.Store.TakeSchedule(ctx, x, tr, next(x, now))
		if errors.Is(err, store.ErrConflict) {
			// This due time was taken before, at another commit: the clock was set back since. It is not taken again.
			err = s.c.Store.MoveSchedule(ctx, x, next(x, now))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
