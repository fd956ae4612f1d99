package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"spindle/pipeline"
)

// Ref is where a ref is.
type Ref struct{ Name, SHA string }

// RefMove makes the event beside it hold only while its ref is where the one who looked at the knot knew it to be:
// a push that was told meanwhile says more than the look does.
type RefMove struct {
	// Expect is where the ref was last seen, "" for a ref that was not.
	Expect string
}

// Look is what is known of a repository's refs before somebody looks at its knot.
type Look struct {
	// Refs are where the refs are believed to be, by name.
	Refs map[string]string
	// First is when the repository was first looked at; zero means that this is the first time.
	First time.Time
	// Mark is the last event that was accepted before.
	Mark int64
}

// Look tells what is known of a repository's refs.
func (s *Store) Look(ctx context.Context, repo string) (l Look, err error) {
	if _, err := s.r.get(ctx, "SELECT coalesce(max(id), 0) FROM events", nil, &l.Mark); err != nil {
		return l, err
	}
	rows, err := s.r.query(ctx, "SELECT ref, sha FROM refs WHERE repo = ?", repo)
	l.Refs = map[string]string{}
	_, err = collect(rows, err, "read the refs of "+repo, func(scan func(...any) error) (struct{}, error) {
		var name, sha string
		err := scan(&name, &sha)
		l.Refs[name] = sha
		return struct{}{}, err
	})
	if err != nil {
		return l, err
	}
	l.First, err = s.Sighted(ctx, repo)
	return l, err
}

// Sighted is when a repository was first looked at; zero means not yet.
func (s *Store) Sighted(ctx context.Context, repo string) (time.Time, error) {
	var at int64
	_, err := s.r.get(ctx, "SELECT first_at FROM sights WHERE repo = ?", []any{repo}, &at)
	return fromMicros(at), err
}

// Sight ends a look at a repository. The first one takes all refs as they are; after others, refs that are gone (with
// where they were) are forgotten. What a push moved since the look began stays as it is.
func (s *Store) Sight(ctx context.Context, repo string, l Look, refs, gone []Ref) error {
	return s.write(ctx, "note the refs of "+repo, func(t *tx) error {
		if _, err := t.exec(`INSERT INTO sights (repo, mark, first_at, last_at) VALUES (?1, ?2, ?3, ?3)
			ON CONFLICT (repo) DO UPDATE SET mark = excluded.mark, last_at = excluded.last_at`, repo, l.Mark, micros(t.now)); err != nil {
			return err
		}
		if _, err := t.exec("UPDATE events SET early = 0 WHERE repo = ? AND early AND id <= ?", repo, l.Mark); err != nil {
			return err
		}
		if !l.First.IsZero() {
			refs = nil
		}
		for _, r := range refs {
			if _, err := t.exec(`INSERT INTO refs (repo, ref, sha, event, seen_at) VALUES (?1, ?2, ?3, 0, ?4) ON CONFLICT (repo, ref) DO UPDATE
				SET sha = excluded.sha, event = 0, seen_at = excluded.seen_at WHERE refs.event <= ?5`, repo, r.Name, r.SHA, micros(t.now), l.Mark); err != nil {
				return err
			}
		}
		for _, r := range gone {
			if _, err := t.exec("DELETE FROM refs WHERE repo = ? AND ref = ? AND sha = ?", repo, r.Name, r.SHA); err != nil {
				return err
			}
		}
		return nil
	})
}

// zeroName tells whether a name of a commit stands for nothing.
func zeroName(sha string) bool { return strings.Trim(sha, "0") == "" }

// refAt is where a ref is believed to be; "" is nowhere.
func (t *tx) refAt(repo, ref string) (sha string, err error) {
	_, err = t.get("SELECT sha FROM refs WHERE repo = ? AND ref = ?", []any{repo, ref}, &sha)
	return sha, err
}

// linked tells whether a push goes on from where its ref is believed to be.
func linked(at string, tr pipeline.Trigger) bool {
	return at == tr.Old || zeroName(at) && zeroName(tr.Old)
}

// sameMove is the key of an event that has run what tr, which is not known by its own key, asks for: of a push whose
// notice comes after a look has found where it led, the event of that look; of what a look finds, the push that was
// told since the look before, whatever came between. A push that goes on from where the ref is, is one of its own.
func (t *tx) sameMove(at string, tr pipeline.Trigger) (key string, err error) {
	switch {
	case tr.Late:
		_, err = t.get(`SELECT key FROM events WHERE repo = ?1 AND json_extract(body, '$.ref') = ?2 AND json_extract(body, '$.kind') = 'push'
			AND json_extract(body, '$.retryOf') IS NULL AND id > coalesce((SELECT mark FROM sights WHERE repo = ?1), 0)
			AND json_extract(body, '$.commit') = ?3 ORDER BY id DESC LIMIT 1`, []any{tr.Repo, tr.Ref, tr.Commit}, &key)
	case !linked(at, tr):
		_, err = t.get(`SELECT key FROM events WHERE repo = ? AND json_extract(body, '$.ref') = ? AND json_extract(body, '$.commit') = ?
			AND json_extract(body, '$.late') AND json_extract(body, '$.kind') = 'push' ORDER BY id DESC LIMIT 1`,
			[]any{tr.Repo, tr.Ref, tr.Commit}, &key)
	}
	return key, err
}

// move notes where a push takes its ref. One that does not go on from where the ref is believed to be leaves that as
// it is: it is told late, or others before it were lost, and the next look tells which. When the one that was missing
// comes, those that were told before it and go on from it count as well.
func (t *tx) move(at string, tr pipeline.Trigger, event int64) error {
	if !tr.Late && !linked(at, tr) {
		// Of a ref of which nothing was ever told, any push tells where it is.
		var one int
		known, err := t.get("SELECT 1 FROM refs WHERE repo = ? AND ref = ?", []any{tr.Repo, tr.Ref}, &one)
		if err == nil && !known {
			known, err = t.toldBefore(tr, event)
		}
		if err != nil {
			return err
		}
		if known {
			_, err := t.exec("UPDATE events SET early = 1 WHERE id = ?", event)
			return err
		}
	}
	if tr.Late {
		if _, err := t.exec(`UPDATE events SET early = 0 WHERE repo = ? AND early AND json_extract(body, '$.ref') = ?
			AND json_extract(body, '$.commit') = ?`, tr.Repo, tr.Ref, tr.Commit); err != nil {
			return err
		}
	}
	to, err := t.onward(tr)
	if err != nil {
		return err
	}
	return t.placeRef(tr, to, event)
}

// toldBefore tells whether an earlier event speaks of the ref of tr.
func (t *tx) toldBefore(tr pipeline.Trigger, event int64) (bool, error) {
	var one int
	return t.get(`SELECT 1 FROM events WHERE repo = ? AND json_extract(body, '$.ref') = ? AND json_extract(body, '$.kind') = 'push'
		AND json_extract(body, '$.retryOf') IS NULL AND id < ? LIMIT 1`, []any{tr.Repo, tr.Ref, event}, &one)
}

// mostOnward bounds how many pushes that were told too early are followed.
const mostOnward = 1000

// onward is where a ref is after tr: pushes that were told too early may go on from where tr leads.
func (t *tx) onward(tr pipeline.Trigger) (string, error) {
	to := tr.Commit
	for range mostOnward {
		var id int64
		var next string
		some, err := t.get(`SELECT id, json_extract(body, '$.commit') FROM events WHERE repo = ? AND early
			AND json_extract(body, '$.ref') = ? AND coalesce(json_extract(body, '$.old'), '') = ? ORDER BY id LIMIT 1`,
			[]any{tr.Repo, tr.Ref, to}, &id, &next)
		if err != nil || !some {
			return to, err
		}
		if _, err := t.exec("UPDATE events SET early = 0 WHERE id = ?", id); err != nil {
			return to, err
		}
		to = next
	}
	return to, nil
}

// placeRef notes where the ref of tr is now.
func (t *tx) placeRef(tr pipeline.Trigger, sha string, event int64) error {
	if zeroName(sha) {
		_, err := t.exec("DELETE FROM refs WHERE repo = ? AND ref = ?", tr.Repo, tr.Ref)
		return err
	}
	_, err := t.exec(`INSERT INTO refs (repo, ref, sha, event, seen_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (repo, ref) DO UPDATE
		SET sha = excluded.sha, event = excluded.event, seen_at = excluded.seen_at`, tr.Repo, tr.Ref, sha, event, micros(t.now))
	if err != nil {
		return fmt.Errorf("ref %s: %w", tr.Ref, err)
	}
	return nil
}
