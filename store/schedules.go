package store

import (
	"context"
	"fmt"
	"time"

	"spindle/pipeline"
)

// MaxSchedules bounds the time tables of one repository.
const MaxSchedules = 500

// Schedule is one time table of a workflow on the default branch of a repository.
type Schedule struct {
	Repo, Workflow string
	// Cron is as the file has it, and Zone an IANA name.
	Cron, Zone string
	// Next is when it is due, or zero for never again; Last is the due time that was last taken.
	Next, Last time.Time
}

// PutSchedules replaces the time tables of a repository by those that its files have at commit sha. One that was there
// before keeps its times, so that a due time is neither lost nor taken twice.
func (s *Store) PutSchedules(ctx context.Context, repo, sha string, list []Schedule) error {
	if len(list) > MaxSchedules {
		return fmt.Errorf("%w: %d time tables", ErrTooLarge, len(list))
	}
	return s.write(ctx, "schedules of "+repo, func(t *tx) error {
		old, err := t.schedules("WHERE repo = ?", repo)
		if err != nil {
			return err
		}
		type key struct{ workflow, cron, zone string }
		had := make(map[key]bool, len(old))
		for _, o := range old {
			had[key{o.Workflow, o.Cron, o.Zone}] = true
		}
		for _, n := range list {
			k := key{n.Workflow, n.Cron, n.Zone}
			if _, again := had[k]; again {
				had[k] = false
				continue
			}
			had[k] = false
			if err := t.exec1("INSERT INTO schedules (repo, workflow, cron, zone, next_at, last_at) VALUES (?, ?, ?, ?, ?, 0)",
				repo, n.Workflow, n.Cron, n.Zone, micros(n.Next)); err != nil {
				return err
			}
		}
		for k, gone := range had {
			if !gone {
				continue
			}
			if err := t.exec1("DELETE FROM schedules WHERE repo = ? AND workflow = ? AND cron = ? AND zone = ?", repo, k.workflow, k.cron, k.zone); err != nil {
				return err
			}
		}
		return t.exec1(`INSERT INTO timetables (repo, sha, read_at) VALUES (?, ?, ?)
			ON CONFLICT (repo) DO UPDATE SET sha = excluded.sha, read_at = excluded.read_at`, repo, sha, micros(t.now))
	})
}

// MoveSchedule sets when a time table is due next, unless it was moved since it was read.
func (s *Store) MoveSchedule(ctx context.Context, x Schedule, next time.Time) error {
	return s.write(ctx, "move a schedule of "+x.Repo, func(t *tx) error {
		_, err := t.moveSchedule(x, next, x.Last)
		return err
	})
}

func (t *tx) moveSchedule(x Schedule, next, last time.Time) (bool, error) {
	n, err := t.exec(`UPDATE schedules SET next_at = ?, last_at = ? WHERE repo = ? AND workflow = ? AND cron = ? AND zone = ? AND next_at = ?`,
		micros(next), micros(last), x.Repo, x.Workflow, x.Cron, x.Zone, micros(x.Next))
	return n > 0, err
}

// TakeSchedule takes a due time of x: in one transaction tr is accepted and x is due at next. It changes nothing when x
// was moved since it was read; a due time that was taken before starts nothing again.
func (s *Store) TakeSchedule(ctx context.Context, x Schedule, tr pipeline.Trigger, next time.Time) error {
	return s.write(ctx, "take a due time of "+x.Repo, func(t *tx) error {
		moved, err := t.moveSchedule(x, next, tr.At)
		if err != nil || !moved {
			return err
		}
		return t.putEvent(tr, nil, &Accepted{})
	})
}

// Schedules lists the time tables of a repository, the next one first.
func (s *Store) Schedules(ctx context.Context, repo string) ([]Schedule, error) {
	rows, err := s.r.query(ctx, "SELECT "+scheduleColumns+" FROM schedules WHERE repo = ? ORDER BY next_at, workflow", repo)
	return collect(rows, err, "read schedules", scanSchedule)
}

// DueSchedules lists time tables of repositories that are served, due at or before now, the longest due first.
func (s *Store) DueSchedules(ctx context.Context, now time.Time, limit int) ([]Schedule, error) {
	rows, err := s.r.query(ctx, "SELECT "+scheduleColumns+` FROM schedules WHERE next_at > 0 AND next_at <= ?
		AND repo IN (SELECT did FROM repos WHERE gone = 0) ORDER BY next_at LIMIT ?`, micros(now), limit)
	return collect(rows, err, "read due schedules", scanSchedule)
}

// LaterSchedules lists time tables that are due after now, by repository and workflow.
func (s *Store) LaterSchedules(ctx context.Context, now time.Time) ([]Schedule, error) {
	rows, err := s.r.query(ctx, "SELECT "+scheduleColumns+" FROM schedules WHERE next_at > ? ORDER BY repo, workflow, cron, zone", micros(now))
	return collect(rows, err, "read schedules", scanSchedule)
}

// UnreadTimetables lists repositories that are served and whose time tables were never read.
func (s *Store) UnreadTimetables(ctx context.Context, limit int) ([]string, error) {
	rows, err := s.r.query(ctx, "SELECT did FROM repos WHERE gone = 0 AND did NOT IN (SELECT repo FROM timetables) ORDER BY did LIMIT ?", limit)
	return collect(rows, err, "read what has no time tables", func(scan func(...any) error) (did string, err error) { return did, scan(&did) })
}

const scheduleColumns = "repo, workflow, cron, zone, next_at, last_at"

func scanSchedule(scan func(...any) error) (x Schedule, err error) {
	var next, last int64
	err = scan(&x.Repo, &x.Workflow, &x.Cron, &x.Zone, &next, &last)
	x.Next, x.Last = fromMicros(next), fromMicros(last)
	return x, err
}

func (t *tx) schedules(where string, args ...any) ([]Schedule, error) {
	rows, err := t.query("SELECT "+scheduleColumns+" FROM schedules "+where, args...)
	return collect(rows, err, "read schedules", scanSchedule)
}
