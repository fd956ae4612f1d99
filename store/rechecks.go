package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// hint notes that a record may have changed. A hint that already stands gets the next generation and is due now.
func (t *tx) hint(r Recheck) error {
	if len(r.DID)+len(r.Collection)+len(r.Rkey) > maxKey || len(r.Body) > maxTrigger {
		return fmt.Errorf("%w: the name of a record", ErrTooLarge)
	}
	t.rings = true
	_, err := t.exec(`INSERT INTO rechecks (did, collection, rkey, generation, tries, not_before, reason, body) VALUES (?, ?, ?, 1, 0, ?, ?, ?)
		ON CONFLICT (did, collection, rkey) DO UPDATE SET generation = generation + 1, tries = 0, not_before = excluded.not_before,
		reason = excluded.reason, body = excluded.body`, r.DID, r.Collection, r.Rkey, micros(t.now), clip(r.Reason), r.Body)
	return err
}

// hintRows is how many hints one statement takes where many are written.
const hintRows = 64

// hints notes many hints. A statement costs as much as a row does, so rows share one as far as they fill it.
func (t *tx) hints(rs []Recheck) error {
	for len(rs) >= hintRows {
		args := make([]any, 0, 5*hintRows)
		for _, r := range rs[:hintRows] {
			if len(r.DID)+len(r.Collection)+len(r.Rkey) > maxKey {
				return fmt.Errorf("%w: the name of a record", ErrTooLarge)
			}
			args = append(args, r.DID, r.Collection, r.Rkey, micros(t.now), clip(r.Reason))
		}
		if _, err := t.exec(manyHints, args...); err != nil {
			return err
		}
		t.rings = true
		rs = rs[hintRows:]
	}
	for _, r := range rs {
		if err := t.hint(r); err != nil {
			return err
		}
	}
	return nil
}

// manyHints is the statement of hint for hintRows rows.
var manyHints = `INSERT INTO rechecks (did, collection, rkey, generation, tries, not_before, reason) VALUES ` +
	strings.Repeat("(?, ?, ?, 1, 0, ?, ?), ", hintRows-1) + `(?, ?, ?, 1, 0, ?, ?)
	ON CONFLICT (did, collection, rkey) DO UPDATE SET generation = generation + 1, tries = 0, not_before = excluded.not_before,
	reason = excluded.reason`

// fairWindow is out of how many hints, for each that is wanted, those of different accounts are chosen.
const fairWindow = 16

// DueRechecks lists hints whose time has come: first one of each account, those longest due first, then the
// second of each, and so on. An account with many hints so takes no more of a list than others while others wait.
func (s *Store) DueRechecks(ctx context.Context, limit int) ([]Recheck, error) {
	rows, err := s.r.query(ctx, `SELECT did, collection, rkey, generation, tries, not_before, reason, body FROM (
			SELECT *, row_number() OVER (PARTITION BY did ORDER BY not_before, place) AS turn FROM (
				SELECT *, rowid AS place FROM rechecks WHERE not_before <= ? ORDER BY not_before, rowid LIMIT ?))
		ORDER BY turn, not_before, place LIMIT ?`, micros(now(s.c.Clock)), limit*fairWindow, limit)
	return collect(rows, err, "read the due hints", func(scan func(...any) error) (r Recheck, err error) {
		var at int64
		err = scan(&r.DID, &r.Collection, &r.Rkey, &r.Generation, &r.Tries, &at, &r.Reason, &r.Body)
		r.NotBefore = fromMicros(at)
		return r, err
	})
}

// PostponeRecheck counts a failed try of r and puts it off until until. A newer hint is left as it is.
func (s *Store) PostponeRecheck(ctx context.Context, r Recheck, reason string, until time.Time) error {
	return s.write(ctx, "postpone a hint", func(t *tx) error {
		_, err := t.exec(`UPDATE rechecks SET tries = tries + 1, not_before = ?, reason = ?
			WHERE did = ? AND collection = ? AND rkey = ? AND generation = ?`,
			micros(until), clip(reason), r.DID, r.Collection, r.Rkey, r.Generation)
		return err
	})
}

// CountRechecks counts the hints that stand.
func (s *Store) CountRechecks(ctx context.Context) (n int, err error) {
	_, err = s.r.get(ctx, "SELECT count(*) FROM rechecks", nil, &n)
	return n, err
}
