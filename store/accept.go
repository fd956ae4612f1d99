package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"spindle/pipeline"
	"spindle/rbac"
)

// Bounds of what is accepted.
const (
	maxTrigger = 256 << 10
	maxRecord  = 1 << 20
	maxKey     = 1 << 10
	maxReason  = 4 << 10
)

// Accept commits all of e in one transaction, or nothing. ErrConflict is a known trigger key with another
// meaning, ErrReplay a token used before, ErrTooLarge what is above the bounds.
func (s *Store) Accept(ctx context.Context, e Effects) (Accepted, error) {
	if err := e.check(); err != nil {
		return Accepted{}, err
	}
	name := "accept"
	if crashing {
		name += " " + e.kind()
	}
	return value(ctx, s, name, func(t *tx) (Accepted, error) { return t.accept(e) })
}

func (e Effects) check() error {
	for _, r := range e.Records {
		if len(r.CBOR) > maxRecord || len(r.DID)+len(r.Collection)+len(r.Rkey) > maxKey {
			return fmt.Errorf("%w: record of %d bytes", ErrTooLarge, len(r.CBOR))
		}
	}
	return nil
}

func (t *tx) accept(e Effects) (a Accepted, err error) {
	if e.Token != nil {
		fresh, err := t.useToken(e.Token.Issuer, e.Token.JTI, e.Token.Expires)
		if err != nil {
			return a, err
		}
		if !fresh {
			return a, ErrReplay
		}
	}
	for _, r := range e.Records {
		applied, stale, err := t.putRecord(r)
		if err != nil {
			return a, fmt.Errorf("record %s/%s/%s: %w", r.DID, r.Collection, r.Rkey, err)
		}
		if applied {
			a.RecordsApplied++
		}
		a.Stale = a.Stale || stale
	}
	if !a.Stale {
		if err := t.follow(e); err != nil {
			return a, err
		}
	}
	if e.Pull != nil && !a.Stale {
		if err := t.putPull(*e.Pull, &a); err != nil {
			return a, fmt.Errorf("pull request %s: %w", e.Pull.Ticket, err)
		}
	}
	if e.Event != nil {
		if err := t.putEvent(*e.Event, e.Move, &a); err != nil {
			return a, fmt.Errorf("trigger %q: %w", e.Event.Key, err)
		}
	}
	if err := t.hints(e.Rechecks); err != nil {
		return a, err
	}
	if r := e.Settled; r != nil {
		if _, err := t.exec("DELETE FROM rechecks WHERE did = ? AND collection = ? AND rkey = ? AND generation = ?",
			r.DID, r.Collection, r.Rkey, r.Generation); err != nil {
			return a, err
		}
	}
	if e.Gap != nil {
		if err := t.openGap(*e.Gap); err != nil {
			return a, err
		}
	}
	if e.Cursor != nil {
		if err := t.putCursor(*e.Cursor); err != nil {
			return a, err
		}
	}
	return a, nil
}

// putRecord stores r unless a newer revision is known. The same CID again is no change.
func (t *tx) putRecord(r Record) (applied, stale bool, err error) {
	var rev, cid string
	var deleted bool
	known, err := t.get("SELECT rev, cid, deleted FROM records WHERE did = ? AND collection = ? AND rkey = ?",
		[]any{r.DID, r.Collection, r.Rkey}, &rev, &cid, &deleted)
	if err != nil {
		return false, false, err
	}
	if known && r.Rev < rev {
		return false, true, nil
	}
	if r.Deleted {
		r.CID, r.CBOR = "", nil
	}
	// What is older than the last reading of the whole is not news, whatever is known of the record itself. And the
	// absence of what was never kept matters only where an older copy may still come by.
	var whole string
	read, err := t.get("SELECT rev FROM backfill WHERE did = ?", []any{r.DID}, &whole)
	if err != nil || r.Deleted && !known && !read {
		return false, false, err
	}
	if r.Rev < whole {
		return false, true, nil
	}
	same := known && cid == r.CID && deleted == r.Deleted
	_, err = t.exec(`INSERT INTO records (did, collection, rkey, rev, cid, cbor, deleted, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (did, collection, rkey) DO UPDATE SET rev = excluded.rev, cid = excluded.cid, cbor = excluded.cbor,
		deleted = excluded.deleted, updated_at = excluded.updated_at`,
		r.DID, r.Collection, r.Rkey, r.Rev, r.CID, r.CBOR, r.Deleted, micros(t.now))
	return err == nil && !same, false, err
}

// follow applies what follows from records: repositories, collaborators, members, and with them the policy.
func (t *tx) follow(e Effects) error {
	touched := map[string]bool{}
	older := map[string]bool{}
	for _, b := range e.Repos {
		applied, err := t.putRepo(b)
		if err != nil {
			return fmt.Errorf("repository %s: %w", b.Repo, err)
		}
		touched[b.Repo], older[b.Repo] = true, !applied
	}
	for repo, dids := range e.ReplaceCollaborators {
		// A list that comes with a binding is as old as that.
		if dids == nil || older[repo] {
			continue
		}
		if _, err := t.exec("DELETE FROM collaborators WHERE repo = ?", repo); err != nil {
			return err
		}
		for _, did := range dids {
			if err := t.putCollaborator(Collaborator{Repo: repo, DID: did}); err != nil {
				return err
			}
		}
		touched[repo] = true
	}
	for _, c := range e.Collaborators {
		if err := t.putCollaborator(c); err != nil {
			return err
		}
		touched[c.Repo] = true
	}
	repos := make([]string, 0, len(touched))
	for repo := range touched {
		repos = append(repos, repo)
	}
	slices.Sort(repos)
	for _, repo := range repos {
		if err := t.repolice(repo); err != nil {
			return fmt.Errorf("policy of %s: %w", repo, err)
		}
	}
	for _, a := range e.Accounts {
		if err := t.putAccount(a); err != nil {
			return fmt.Errorf("account %s: %w", a.DID, err)
		}
	}
	for _, m := range e.Members {
		if err := t.putMember(m); err != nil {
			return fmt.Errorf("member %s: %w", m.DID, err)
		}
	}
	for author, all := range e.ReplaceMembers {
		if err := t.replaceMembers(author, all); err != nil {
			return fmt.Errorf("members by %s: %w", author, err)
		}
	}
	return nil
}

func (t *tx) putCollaborator(c Collaborator) (err error) {
	// Checked here as well as in the policy: a repository that is not known yet has no policy rows.
	if _, err := rbac.New(0, rbac.Closed, []rbac.Rule{rbac.Grant(c.DID, rbac.Collaborator, rbac.RepoDomain(c.Repo))}); err != nil {
		return err
	}
	if c.Removed {
		_, err = t.exec("DELETE FROM collaborators WHERE repo = ? AND did = ?", c.Repo, c.DID)
	} else {
		_, err = t.exec("INSERT INTO collaborators (repo, did) VALUES (?, ?) ON CONFLICT DO NOTHING", c.Repo, c.DID)
	}
	return err
}

// putRepo stores a binding. An owner that differs begins a new owner epoch: the collaborators of the former
// owner go, and the secrets of the former epoch are no longer given to anybody. applied is false for a binding that
// is older than the one known.
func (t *tx) putRepo(b RepoBinding) (applied bool, err error) {
	var owner string
	var epoch, verified int64
	known, err := t.get("SELECT owner, owner_epoch, verified_at FROM repos WHERE did = ?", []any{b.Repo}, &owner, &epoch, &verified)
	if err != nil {
		return false, err
	}
	if _, err := rbac.New(0, rbac.Closed, []rbac.Rule{rbac.Grant(b.Owner, rbac.Owner, rbac.RepoDomain(b.Repo))}); err != nil {
		return false, err
	}
	// Two workers may prove one repository at a time; the later proof counts, unless the clock was set back.
	if known && micros(b.VerifiedAt) < verified && verified <= micros(t.now) {
		return false, nil
	}
	switch {
	case !known:
		epoch = 1
	case owner != b.Owner:
		epoch++
		if _, err := t.exec("DELETE FROM collaborators WHERE repo = ?", b.Repo); err != nil {
			return false, err
		}
		if err := t.audit("spindle", "repo.owner-changed", b.Repo, owner+" -> "+b.Owner); err != nil {
			return false, err
		}
	}
	t.rings = true
	return true, t.exec1(`INSERT INTO repos (did, owner, owner_epoch, rkey, name, knot, default_branch, spindle, manifest_cid, declaration_cid,
		generation, verified_at, gone, gone_reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (did) DO UPDATE SET owner = excluded.owner, owner_epoch = excluded.owner_epoch, rkey = excluded.rkey,
		name = excluded.name, knot = excluded.knot, default_branch = excluded.default_branch, spindle = excluded.spindle,
		manifest_cid = excluded.manifest_cid, declaration_cid = excluded.declaration_cid, generation = excluded.generation,
		verified_at = excluded.verified_at, gone = excluded.gone,
		gone_reason = excluded.gone_reason`,
		b.Repo, b.Owner, epoch, b.Rkey, b.Name, b.Knot, b.DefaultBranch, b.Spindle, b.ManifestCID, b.DeclarationCID,
		b.Generation, micros(b.VerifiedAt), b.Gone, clip(b.GoneReason))
}

// putEvent stores a trigger once. With move, the trigger is what a look at a knot found, and does not hold any more
// if its ref was moved meanwhile.
func (t *tx) putEvent(tr pipeline.Trigger, move *RefMove, a *Accepted) error {
	if tr.Key == "" || len(tr.Key) > maxKey || tr.Repo == "" {
		return errors.New("a trigger needs a key of at most 1 KiB and a repository")
	}
	push := tr.Kind == pipeline.Push && tr.RetryOf == ""
	var at string
	if push {
		var err error
		if at, err = t.refAt(tr.Repo, tr.Ref); err != nil {
			return err
		}
		if move != nil && at != move.Expect {
			a.Overtaken = true
			return nil
		}
	}
	key, err := t.moveKey(at, tr)
	if err != nil {
		return err
	}
	tr.Key = key
	body, err := json.Marshal(tr)
	if err != nil {
		return err
	}
	if len(body) > maxTrigger {
		return fmt.Errorf("%w: trigger of %d bytes", ErrTooLarge, len(body))
	}
	meaning, err := meaning(tr)
	if err != nil {
		return err
	}
	a.Key = tr.Key
	if err := t.known(tr.Key, tr, a); err != nil {
		return err
	}
	if push && !a.Duplicate {
		same, err := t.sameMove(at, tr)
		if err != nil {
			return err
		}
		if same != "" {
			if err := t.known(same, tr, a); err != nil {
				return err
			}
		}
	}
	if a.Duplicate {
		if tr.Late {
			return t.move(at, tr, a.EventID)
		}
		return nil
	}
	sum := sha256.Sum256(body)
	a.EventID, err = t.insert(`INSERT INTO events (key, meaning, repo, body, sum, state, reason, tries, not_before, received_at, settled_at, pipeline, lane)
		VALUES (?, ?, ?, ?, ?, 'pending', '', 0, 0, ?, 0, '', ?)`, tr.Key, meaning, tr.Repo, string(body), sum[:], micros(t.now), lane(tr))
	t.rings = true
	if err != nil || !push {
		return err
	}
	return t.move(at, tr, a.EventID)
}

// known tells in a of the event with this key that is there already, if there is one; ErrConflict if it is another
// than tr.
func (t *tx) known(key string, tr pipeline.Trigger, a *Accepted) error {
	var had []byte
	var body string
	known, err := t.get("SELECT id, meaning, body, pipeline FROM events WHERE key = ?", []any{key}, &a.EventID, &had, &body, &a.Pipeline)
	if err != nil || !known {
		return err
	}
	m, err := meaning(tr)
	if err != nil {
		return err
	}
	if !bytes.Equal(had, m) {
		// What was found late is the same move as what its own notice tells more of: who pushed, with what options.
		var old pipeline.Trigger
		if err := json.Unmarshal([]byte(body), &old); err != nil {
			return fmt.Errorf("%w: a trigger: %w", ErrCorrupt, err)
		}
		// Nor does every way by which a push is told say as much.
		ways := tr.Kind == pipeline.Push && tr.RetryOf == "" && old.ActorSource != tr.ActorSource
		if !old.Late && !tr.Late && !ways || old.Kind != tr.Kind || old.Repo != tr.Repo || old.Ref != tr.Ref || old.Commit != tr.Commit {
			return fmt.Errorf("%w: this key names another trigger", ErrConflict)
		}
	}
	a.Key, a.Duplicate = key, true
	return nil
}

// moveKey is the key under which tr is known or will be. A push is named by the move of its ref, and a ref may
// make the same move again after others (A to B, back, and A to B): a knot numbers nothing, so a move that is
// known and goes on from where the ref is, is a new event, and its key gets the number of the last event of that ref.
// Told twice in a row it is the same event, as is an old move told again that does not go on from there.
func (t *tx) moveKey(at string, tr pipeline.Trigger) (string, error) {
	if tr.Kind != pipeline.Push || tr.RetryOf != "" {
		return tr.Key, nil
	}
	var last int64
	var lastKey, old, commit, when string
	some, err := t.get(`SELECT id, key, coalesce(json_extract(body, '$.old'), ''), json_extract(body, '$.commit'), json_extract(body, '$.at') FROM events
		WHERE repo = ? AND json_extract(body, '$.ref') = ? AND json_extract(body, '$.kind') = 'push'
		AND json_extract(body, '$.retryOf') IS NULL ORDER BY id DESC LIMIT 1`, []any{tr.Repo, tr.Ref}, &last, &lastKey, &old, &commit, &when)
	if err != nil || !some {
		return tr.Key, err
	}
	if old == tr.Old && commit == tr.Commit {
		return lastKey, nil
	}
	// The numbered keys of the same move; ';' is the character after ':'.
	var known string
	had, err := t.get("SELECT key FROM events WHERE key = ? OR (key > ? AND key < ?) ORDER BY id DESC LIMIT 1",
		[]any{tr.Key, tr.Key + ":", tr.Key + ";"}, &known)
	switch {
	case err != nil || !had:
		return tr.Key, err
	case tr.ActorSource.Streamed() && !later(tr.At, when):
		// A stream tells when it happened: what is older than the last move is no new one.
		return known, nil
	case linked(at, tr):
		return fmt.Sprintf("%s:%d", tr.Key, last), nil
	}
	return known, nil
}

// later tells whether a time is after one that was stored.
func later(t time.Time, stored string) bool {
	s, err := time.Parse(time.RFC3339Nano, stored)
	return err != nil || t.After(s)
}

// meaning digests what a trigger asks for. When it was told, by which way and how late does not belong to it.
func meaning(tr pipeline.Trigger) ([]byte, error) {
	tr.At, tr.ActorSource, tr.Late = time.Time{}, "", false
	b, err := json.Marshal(tr)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// SaveCursor moves a cursor forward; a smaller value changes nothing, unless the cursor is reset.
func (s *Store) SaveCursor(ctx context.Context, c Cursor) error {
	return s.write(ctx, "save the cursor of "+c.Host, func(t *tx) error { return t.putCursor(c) })
}

func (t *tx) putCursor(c Cursor) error {
	if c.Reset {
		_, err := t.exec("DELETE FROM cursors WHERE source = ? AND host = ? AND protocol = ?", c.Source, c.Host, c.Protocol)
		if err != nil || c.Value == 0 {
			return err
		}
	}
	_, err := t.exec(`INSERT INTO cursors (source, host, protocol, value, updated_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (source, host, protocol) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
		WHERE excluded.value > cursors.value`, c.Source, c.Host, c.Protocol, c.Value, micros(t.now))
	return err
}

// clip bounds a text that is stored, at the border of a character.
func clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	n := maxReason - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
