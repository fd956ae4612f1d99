package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"spindle/pipeline"
)

// lane is what a trigger waits in. The knot of a fork is a stranger's choice: what has to be read there must not
// hold back what the target does itself, nor other forks.
func lane(tr pipeline.Trigger) string {
	if code := tr.CodeRepo(); code != tr.Repo {
		return tr.Repo + " " + code // no DID has a space
	}
	return tr.Repo
}

// NextEvents lists pending events that are due, at most one for each lane: its oldest. An event that is put off
// holds back the later ones of its lane and nobody else's, so one repository's flood delays only itself. At most
// half of the list are events of forks, and those of the repositories themselves come first.
func (s *Store) NextEvents(ctx context.Context, limit int) ([]Event, error) {
	// Each step of the recursion seeks the next lane in the index of pending events.
	rows, err := s.r.query(ctx, `WITH RECURSIVE r (lane) AS (
			SELECT min(lane) FROM events WHERE state = 'pending'
			UNION ALL SELECT (SELECT min(lane) FROM events WHERE state = 'pending' AND lane > r.lane) FROM r WHERE r.lane IS NOT NULL),
		due AS (SELECT e.id, e.body, e.sum, e.received_at, e.tries, e.lane, e.lane <> e.repo AS fork FROM r
			JOIN events e ON e.id = (SELECT min(id) FROM events WHERE state = 'pending' AND lane = r.lane)
			WHERE r.lane IS NOT NULL AND e.not_before <= ?1)
		SELECT id, body, sum, received_at, tries, lane FROM (
			SELECT * FROM (SELECT * FROM due WHERE NOT fork ORDER BY id LIMIT ?2)
			UNION ALL SELECT * FROM (SELECT * FROM due WHERE fork ORDER BY id LIMIT ?3))
		ORDER BY fork, id`, micros(now(s.c.Clock)), limit, max(limit/2, 1))
	return collect(rows, err, "read the next events", func(scan func(...any) error) (e Event, err error) {
		var body string
		var sum []byte
		var at int64
		if err := scan(&e.ID, &body, &sum, &at, &e.Tries, &e.Lane); err != nil {
			return e, err
		}
		e.ReceivedAt = fromMicros(at)
		e.Trigger, err = trigger(body, sum)
		return e, err
	})
}

// trigger reads a stored trigger and refuses one whose bytes are not those that were accepted.
func trigger(body string, sum []byte) (tr pipeline.Trigger, err error) {
	if have := sha256.Sum256([]byte(body)); sum != nil && !bytes.Equal(have[:], sum) {
		return tr, fmt.Errorf("%w: a trigger is not the one that was accepted", ErrCorrupt)
	}
	if err := json.Unmarshal([]byte(body), &tr); err != nil {
		return tr, fmt.Errorf("%w: a trigger: %w", ErrCorrupt, err)
	}
	return tr, nil
}

// PostponeEvent counts a failed try and puts the event off until until; reason is shown meanwhile.
func (s *Store) PostponeEvent(ctx context.Context, id int64, reason string, until time.Time) error {
	return s.write(ctx, fmt.Sprintf("postpone event %d", id), func(t *tx) error {
		return t.exec1("UPDATE events SET tries = tries + 1, reason = ?, not_before = ? WHERE id = ? AND state = 'pending'",
			clip(reason), micros(until), id)
	})
}

// SettleEvent ends an event without a pipeline; reason stays visible. Settling it again the same way is no
// error, another way is ErrConflict.
func (s *Store) SettleEvent(ctx context.Context, id int64, state EventState, reason string) error {
	return s.settleAs(ctx, id, state, "", reason)
}

// RefuseEvent is SettleEvent as EventRefused, with a code that tells programs what sort of refusal it is.
func (s *Store) RefuseEvent(ctx context.Context, id int64, code, reason string) error {
	return s.settleAs(ctx, id, EventRefused, code, reason)
}

func (s *Store) settleAs(ctx context.Context, id int64, state EventState, code, reason string) error {
	switch state {
	case EventSkipped, EventNoMatch, EventRefused, EventGone:
	default:
		return fmt.Errorf("store: an event cannot be settled as %q", state)
	}
	return s.write(ctx, fmt.Sprintf("settle event %d", id), func(t *tx) error {
		var had EventState
		known, err := t.get("SELECT state FROM events WHERE id = ?", []any{id}, &had)
		switch {
		case err != nil:
			return err
		case !known:
			return ErrNotFound
		case had == state:
			return nil
		case had != EventPending:
			return fmt.Errorf("%w: the event is %s", ErrConflict, had)
		}
		if err := t.exec1("UPDATE events SET code = ? WHERE id = ?", code, id); err != nil {
			return err
		}
		return t.settleEvent(id, state, reason, "")
	})
}

func (t *tx) settleEvent(id int64, state EventState, reason string, p pipeline.ID) error {
	t.rings = true
	return t.exec1("UPDATE events SET state = ?, reason = ?, settled_at = ?, pipeline = ? WHERE id = ? AND state = 'pending'",
		string(state), clip(reason), micros(t.now), string(p), id)
}

// EventByKey is the event with the given trigger key.
func (s *Store) EventByKey(ctx context.Context, key string) (EventView, bool, error) {
	var v EventView
	var body string
	var sum []byte
	var received, notBefore int64
	ok, err := s.r.get(ctx, "SELECT id, body, sum, state, reason, code, tries, not_before, received_at, pipeline FROM events WHERE key = ?",
		[]any{key}, &v.ID, &body, &sum, &v.State, &v.Reason, &v.Code, &v.Tries, &notBefore, &received, &v.Pipeline)
	if err != nil || !ok {
		return EventView{}, false, err
	}
	v.ReceivedAt, v.NotBefore = fromMicros(received), fromMicros(notBefore)
	v.Trigger, err = trigger(body, sum)
	return v, err == nil, err
}
