package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// BackfillKind says where the records of a DID are and what is made of them.
type BackfillKind string

// An account's records are at its PDS, a repository's at its knot.
const (
	BackfillAccount BackfillKind = "account"
	BackfillRepo    BackfillKind = "repo"
)

// BackfillState is where the reading of a DID's records stands.
type BackfillState string

// The states. A reading that a crash cut off is wanted again.
const (
	BackfillWanted   BackfillState = "wanted"
	BackfillFetching BackfillState = "fetching"
	BackfillApplying BackfillState = "applying"
	BackfillDone     BackfillState = "done"
	BackfillWaiting  BackfillState = "waiting"
	BackfillRefused  BackfillState = "refused"
)

// Backfill is the reading of one DID's records.
type Backfill struct {
	DID   string
	Kind  BackfillKind
	State BackfillState
	// Wish grows whenever the reading is asked for.
	Wish int64
	// Why is what asked for it: "start", "gap" and so on.
	Why string
	// Rev is the revision of the last whole reading, "" before it; Host is who was asked.
	Rev, Host string
	// Reason is why it waits or is refused.
	Reason    string
	Tries     int
	NotBefore time.Time
	// Since is when the DID was first followed, Done when its last reading ended.
	Since, Done time.Time
}

// BackfillCount counts the DIDs in each state.
type BackfillCount struct {
	Wanted, Fetching, Applying, Done, Waiting, Refused int
}

// Total is how many DIDs there are.
func (c BackfillCount) Total() int { return c.Open() + c.Done + c.Refused }

// Open is how many DIDs are still to be read.
func (c BackfillCount) Open() int { return c.Wanted + c.Fetching + c.Applying + c.Waiting }

// BackfillStep is how far a reading is with the effects that are committed beside it.
type BackfillStep struct {
	DID, Rev string
	Wish     int64
	// Present are records that the reading found and that have no effect now: those known are true at Rev as well.
	Present []RecordKey
	// Done ends the reading.
	Done bool
}

// RecordKey names a record of a DID.
type RecordKey struct{ Collection, Rkey string }

// Began notes the first start of all, and returns when that was.
func (s *Store) Began(ctx context.Context) (time.Time, error) {
	return value(ctx, s, "note the first start", func(t *tx) (time.Time, error) {
		if _, err := t.exec("INSERT INTO beginning (id, at) VALUES (1, ?) ON CONFLICT DO NOTHING", micros(t.now)); err != nil {
			return time.Time{}, err
		}
		var at int64
		_, err := t.get("SELECT at FROM beginning WHERE id = 1", nil, &at)
		return fromMicros(at), err
	})
}

// tracked selects everybody whose records matter here: who has a role on the spindle and is not banned, the owners of
// the repositories that are served, the authors of records that are kept, and the repositories themselves.
const tracked = `WITH tracked (did, kind) AS (
	SELECT did, 'account' FROM members WHERE role <> 'banned'
	UNION SELECT owner, 'account' FROM repos WHERE gone = 0
	UNION SELECT did, 'account' FROM records WHERE deleted = 0 AND did NOT IN (SELECT did FROM repos)
	UNION SELECT did, 'repo' FROM repos WHERE gone = 0 AND owner NOT IN (SELECT did FROM members WHERE role = 'banned'))
	SELECT did, min(kind) AS kind FROM tracked WHERE did NOT IN (SELECT did FROM members WHERE role = 'banned') GROUP BY did ORDER BY did`

// WantAll asks for the records of everybody who is followed, all in one transaction or nobody, and forgets those who
// no longer are. It returns how many there are.
func (s *Store) WantAll(ctx context.Context, why string) (int, error) {
	return value(ctx, s, "ask for all records", func(t *tx) (int, error) {
		rows, err := t.query(tracked)
		all, err := collect(rows, err, "read who is followed", func(scan func(...any) error) (b Backfill, err error) {
			err = scan(&b.DID, &b.Kind)
			return b, err
		})
		if err != nil {
			return 0, err
		}
		keep := make([]string, 0, len(all))
		for _, b := range all {
			keep = append(keep, b.DID)
			if err := t.want(b.DID, b.Kind, why); err != nil {
				return 0, err
			}
		}
		list, err := json.Marshal(keep)
		if err != nil {
			return 0, err
		}
		_, err = t.exec("DELETE FROM backfill WHERE state NOT IN ('fetching', 'applying') AND did NOT IN (SELECT value FROM json_each(?))", string(list))
		t.rings = true
		return len(all), err
	})
}

// WantBackfill asks for the records of one DID.
func (s *Store) WantBackfill(ctx context.Context, did string, kind BackfillKind, why string) error {
	if len(did) > maxKey {
		return fmt.Errorf("%w: a DID of %d bytes", ErrTooLarge, len(did))
	}
	return s.write(ctx, "ask for the records of "+did, func(t *tx) error { return t.want(did, kind, why) })
}

func (t *tx) want(did string, kind BackfillKind, why string) error {
	t.rings = true
	_, err := t.exec(`INSERT INTO backfill (did, kind, state, wish, why, rev, host, reason, tries, not_before, since, done_at)
		VALUES (?1, ?2, 'wanted', 1, ?3, '', '', '', 0, ?4, ?4, 0)
		ON CONFLICT (did) DO UPDATE SET wish = wish + 1, why = excluded.why, kind = excluded.kind, tries = 0, reason = '',
		not_before = excluded.not_before, state = CASE WHEN state IN ('fetching', 'applying') THEN state ELSE 'wanted' END`,
		did, string(kind), why, micros(t.now))
	return err
}

// ResumeBackfills makes what a former process was reading wanted again.
func (s *Store) ResumeBackfills(ctx context.Context) error {
	return s.write(ctx, "resume the reading of records", func(t *tx) error {
		_, err := t.exec("UPDATE backfill SET state = 'wanted', not_before = ? WHERE state IN ('fetching', 'applying')", micros(t.now))
		return err
	})
}

const backfillColumns = "did, kind, state, wish, why, rev, host, reason, tries, not_before, since, done_at"

func scanBackfill(scan func(...any) error) (b Backfill, err error) {
	var notBefore, since, done int64
	err = scan(&b.DID, &b.Kind, &b.State, &b.Wish, &b.Why, &b.Rev, &b.Host, &b.Reason, &b.Tries, &notBefore, &since, &done)
	b.NotBefore, b.Since, b.Done = fromMicros(notBefore), fromMicros(since), fromMicros(done)
	return b, err
}

// DueBackfills lists readings whose time has come, the longest due first, without those at the hosts named.
func (s *Store) DueBackfills(ctx context.Context, limit int, but []string) ([]Backfill, error) {
	if but == nil {
		but = []string{}
	}
	list, err := json.Marshal(but)
	if err != nil {
		return nil, fmt.Errorf("store: list of hosts: %w", err)
	}
	rows, err := s.r.query(ctx, "SELECT "+backfillColumns+` FROM backfill INDEXED BY backfill_due WHERE state IN ('wanted', 'waiting')
		AND not_before <= ? AND host NOT IN (SELECT value FROM json_each(?)) ORDER BY not_before, did LIMIT ?`,
		micros(now(s.c.Clock)), string(list), limit)
	return collect(rows, err, "read whose records are due", scanBackfill)
}

// Backfill is how the reading of a DID's records stands.
func (s *Store) Backfill(ctx context.Context, did string) (Backfill, bool, error) {
	rows, err := s.r.query(ctx, "SELECT "+backfillColumns+" FROM backfill WHERE did = ?", did)
	bs, err := collect(rows, err, "read the reading of "+did, scanBackfill)
	if err != nil || len(bs) == 0 {
		return Backfill{}, false, err
	}
	return bs[0], true, nil
}

// Troubled lists readings that wait or are refused, with their reasons.
func (s *Store) Troubled(ctx context.Context, limit int) ([]Backfill, error) {
	rows, err := s.r.query(ctx, "SELECT "+backfillColumns+` FROM backfill WHERE state IN ('waiting', 'refused') ORDER BY did LIMIT ?`, limit)
	return collect(rows, err, "read whose records cannot be read", scanBackfill)
}

// CountBackfills counts the readings by state.
func (s *Store) CountBackfills(ctx context.Context) (c BackfillCount, err error) {
	rows, err := s.r.query(ctx, "SELECT state, count(*) FROM backfill GROUP BY state")
	_, err = collect(rows, err, "count the readings", func(scan func(...any) error) (struct{}, error) {
		var state BackfillState
		var n int
		err := scan(&state, &n)
		for s, at := range map[BackfillState]*int{
			BackfillWanted: &c.Wanted, BackfillFetching: &c.Fetching, BackfillApplying: &c.Applying, BackfillDone: &c.Done,
			BackfillWaiting: &c.Waiting, BackfillRefused: &c.Refused,
		} {
			if s == state {
				*at = n
			}
		}
		return struct{}{}, err
	})
	return c, err
}

// BeginBackfill notes that the records of b are being fetched from host.
func (s *Store) BeginBackfill(ctx context.Context, b Backfill, host string) error {
	return s.write(ctx, "begin to read "+b.DID, func(t *tx) error {
		return t.exec1("UPDATE backfill SET state = 'fetching', host = ? WHERE did = ?", host, b.DID)
	})
}

// ReleaseBackfill puts b back as it was, with the host that its records turned out to be at.
func (s *Store) ReleaseBackfill(ctx context.Context, b Backfill, host string) error {
	return s.write(ctx, "put off the reading of "+b.DID, func(t *tx) error {
		_, err := t.exec("UPDATE backfill SET state = 'wanted', host = ? WHERE did = ?", host, b.DID)
		return err
	})
}

// PostponeBackfill ends a failed reading: it is due again at until, or with a zero time is refused until somebody
// asks anew. A wish that came meanwhile makes it due at once, unless the host asked to wait. tries is the count of
// failures in a row.
func (s *Store) PostponeBackfill(ctx context.Context, b Backfill, reason string, until time.Time, tries int) error {
	state := BackfillWaiting
	if until.IsZero() {
		state = BackfillRefused
	}
	return s.write(ctx, "postpone the reading of "+b.DID, func(t *tx) error {
		t.rings = true
		_, err := t.exec(`UPDATE backfill SET state = CASE WHEN ?1 = 'refused' AND wish <> ?2 THEN 'wanted' ELSE ?1 END, reason = ?3,
			not_before = ?4, tries = ?5 WHERE did = ?6`, string(state), b.Wish, clip(reason), micros(until), tries, b.DID)
		return err
	})
}

// ApplyBackfill commits the effects of records that a whole reading brought, together with how far it is, or nothing.
// A trigger that contradicts a known one is left out and counted.
func (s *Store) ApplyBackfill(ctx context.Context, step BackfillStep, effects []Effects) (conflicts int, err error) {
	for _, e := range effects {
		if err := e.check(); err != nil {
			return 0, err
		}
	}
	return value(ctx, s, "apply the records of "+step.DID, func(t *tx) (int, error) {
		n := 0
		for _, e := range effects {
			// What contradicts is found before anything of the trigger is written; the rest of e is true all the same.
			_, err := t.accept(e)
			if errors.Is(err, ErrConflict) {
				n++
				continue
			}
			if err != nil {
				return 0, err
			}
		}
		for _, k := range step.Present {
			if _, err := t.exec("UPDATE records SET rev = ? WHERE did = ? AND collection = ? AND rkey = ? AND deleted = 0 AND rev < ?",
				step.Rev, step.DID, k.Collection, k.Rkey, step.Rev); err != nil {
				return 0, err
			}
		}
		return n, t.step(step)
	})
}

func (t *tx) step(s BackfillStep) error {
	if !s.Done {
		_, err := t.exec("UPDATE backfill SET state = 'applying' WHERE did = ?", s.DID)
		return err
	}
	t.rings = true
	_, err := t.exec(`UPDATE backfill SET state = CASE WHEN wish = ?1 THEN 'done' ELSE 'wanted' END, not_before = ?2, done_at = ?2,
		rev = ?3, reason = '', tries = 0 WHERE did = ?4`, s.Wish, micros(t.now), s.Rev, s.DID)
	return err
}

// RecordsBefore lists records of did that were last proven before the revision rev and are not known to be gone, by
// key, after the one given.
func (s *Store) RecordsBefore(ctx context.Context, did, rev string, after RecordKey, limit int) ([]RecordKey, error) {
	rows, err := s.r.query(ctx, `SELECT collection, rkey FROM records WHERE did = ? AND deleted = 0 AND rev < ?
		AND (collection, rkey) > (?, ?) ORDER BY collection, rkey LIMIT ?`, did, rev, after.Collection, after.Rkey, limit)
	return collect(rows, err, "read the known records of "+did, func(scan func(...any) error) (k RecordKey, err error) {
		err = scan(&k.Collection, &k.Rkey)
		return k, err
	})
}

// WantNew asks for the records of who is followed and was not before. It returns how many there are.
func (s *Store) WantNew(ctx context.Context) (int, error) {
	var one int
	some, err := s.r.get(ctx, "SELECT 1 FROM ("+tracked+") WHERE did NOT IN (SELECT did FROM backfill) LIMIT 1", nil, &one)
	if err != nil || !some {
		return 0, err
	}
	return value(ctx, s, "ask for new records", func(t *tx) (int, error) {
		rows, err := t.query("SELECT did, kind FROM (" + tracked + ") WHERE did NOT IN (SELECT did FROM backfill)")
		fresh, err := collect(rows, err, "read who is followed", func(scan func(...any) error) (b Backfill, err error) {
			err = scan(&b.DID, &b.Kind)
			return b, err
		})
		for _, b := range fresh {
			if err := t.want(b.DID, b.Kind, "new"); err != nil {
				return 0, err
			}
		}
		return len(fresh), err
	})
}

// Unsighted lists repositories that are served and were not looked at yet.
func (s *Store) Unsighted(ctx context.Context) ([]RepoBinding, error) {
	rows, err := s.r.query(ctx, "SELECT "+repoColumns+" FROM repos WHERE gone = 0 AND did NOT IN (SELECT repo FROM sights) ORDER BY did")
	return collect(rows, err, "read the new repositories", scanRepo)
}
