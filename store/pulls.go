package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"spindle/pipeline"
)

// The states of a pull request.
const (
	PullOpen   = "open"
	PullClosed = "closed"
	PullMerged = "merged"
)

// Round is one submission of a pull request.
type Round struct {
	// URI and CID name the record, Place orders it among the rounds of its pull request.
	URI, CID, Place string
	// Trigger is what the round starts, without key and action.
	Trigger pipeline.Trigger
	// Quiet keeps the round without starting anything.
	Quiet bool
}

// PullChange is what a proven record says of a pull request, or its proven absence.
type PullChange struct {
	// Ticket is the at-uri of the thread, Repo the target, Author whose thread it is.
	Ticket, Repo, Author string
	// State is where the thread stands now; empty when the record does not say.
	State string
	// Round is a submission; nil for none.
	Round *Round
	// Dropped is the at-uri of a submission whose record is gone.
	Dropped string
}

// Pull is a pull request as it is known.
type Pull struct {
	Ticket, Repo, Author, State string
	// Last is the newest round whose record still stands; nil for none.
	Last *Round
}

// proposes tells whether an action asks for a run of the proposed code because the code is new or proposed anew.
func proposes(action string) bool {
	return action == "opened" || action == "synchronize" || action == "reopened"
}

// Pull is the pull request with the given thread.
func (s *Store) Pull(ctx context.Context, ticket string) (Pull, bool, error) {
	p := Pull{Ticket: ticket}
	ok, err := s.r.get(ctx, "SELECT repo, author, state FROM pulls WHERE ticket = ?", []any{ticket}, &p.Repo, &p.Author, &p.State)
	if err != nil || !ok {
		return Pull{}, false, err
	}
	var r Round
	var body string
	some, err := s.r.get(ctx, lastRound, []any{ticket}, &r.URI, &r.CID, &r.Place, &body)
	if err != nil || !some {
		return p, err == nil, err
	}
	r.Trigger, err = trigger(body, nil)
	p.Last = &r
	return p, err == nil, err
}

// RoundTicket is the thread that a round belongs to.
func (s *Store) RoundTicket(ctx context.Context, uri string) (ticket string, ok bool, err error) {
	ok, err = s.r.get(ctx, "SELECT ticket FROM rounds WHERE uri = ?", []any{uri}, &ticket)
	return ticket, ok, err
}

const lastRound = "SELECT uri, cid, place, trigger FROM rounds WHERE ticket = ? AND dropped = 0 ORDER BY place DESC LIMIT 1"

// putPull takes a change over. The events that follow are decided here, by the state that is stored: told twice, or
// by two sources at a time, each change has its event once.
func (t *tx) putPull(c PullChange, a *Accepted) error {
	if c.Ticket == "" || len(c.Ticket) > maxKey {
		return errors.New("a pull request needs a thread of at most 1 KiB")
	}
	p := Pull{Ticket: c.Ticket}
	var changes int64
	known, err := t.get("SELECT repo, author, state, changes FROM pulls WHERE ticket = ?", []any{c.Ticket}, &p.Repo, &p.Author, &p.State, &changes)
	if err != nil {
		return err
	}
	if !known {
		if c.Repo == "" {
			return nil // nothing of it was taken so far
		}
		p.Repo, p.Author, p.State = c.Repo, c.Author, PullOpen
		if c.State != "" {
			p.State = c.State
		}
		if err := t.exec1("INSERT INTO pulls (ticket, repo, author, state, changes) VALUES (?, ?, ?, ?, 0)", p.Ticket, p.Repo, p.Author, p.State); err != nil {
			return err
		}
	}
	if c.Repo != "" && c.Repo != p.Repo {
		return fmt.Errorf("%w: its thread was about another repository before, and a pull request does not move", ErrConflict)
	}
	if c.State != "" && c.State != p.State {
		if err := t.pullState(p, c.State, changes+1, a); err != nil {
			return err
		}
		p.State = c.State
	}
	if c.Round != nil {
		if err := t.putRound(p, *c.Round, a); err != nil {
			return err
		}
	}
	if c.Dropped != "" {
		return t.dropRound(p, c.Dropped)
	}
	return nil
}

// pullState moves a pull request to another state. What waits ends when it is closed or merged; what a runner has
// goes on.
func (t *tx) pullState(p Pull, state string, changes int64, a *Accepted) error {
	if err := t.exec1("UPDATE pulls SET state = ?, changes = ? WHERE ticket = ?", state, changes, p.Ticket); err != nil {
		return err
	}
	action := state
	if state == PullOpen {
		action = "reopened"
	} else if err := t.endRounds(p, "", "the pull request was "+state); err != nil {
		return err
	}
	var r Round
	var body string
	some, err := t.get(lastRound, []any{p.Ticket}, &r.URI, &r.CID, &r.Place, &body)
	if err != nil || !some {
		return err
	}
	tr, err := trigger(body, nil)
	if err != nil {
		return err
	}
	return t.pullEvent(tr, fmt.Sprintf("pull:%s:%s:%d", p.Ticket, action, changes), action, a)
}

// putRound keeps a round, and makes its event when the pull request is open and no newer round is known.
func (t *tx) putRound(p Pull, r Round, a *Accepted) error {
	var ticket, cid string
	var dropped bool
	known, err := t.get("SELECT ticket, cid, dropped FROM rounds WHERE uri = ?", []any{r.URI}, &ticket, &cid, &dropped)
	switch {
	case err != nil:
		return err
	case known && ticket != p.Ticket:
		return fmt.Errorf("%w: the round was one of another pull request before, and does not move", ErrConflict)
	case known && cid == r.CID && !dropped:
		a.Duplicate = true
		return nil
	}
	var earlier, newer int
	if _, err := t.get("SELECT count(*), coalesce(sum(place > ?), 0) FROM rounds WHERE ticket = ? AND (uri <> ? OR cid <> ?)",
		[]any{r.Place, p.Ticket, r.URI, r.CID}, &earlier, &newer); err != nil {
		return err
	}
	body, err := json.Marshal(r.Trigger)
	if err != nil {
		return err
	}
	if err := t.exec1(`INSERT INTO rounds (uri, ticket, place, cid, trigger, dropped) VALUES (?, ?, ?, ?, ?, 0)
		ON CONFLICT (uri) DO UPDATE SET cid = excluded.cid, trigger = excluded.trigger, dropped = 0`,
		r.URI, p.Ticket, r.Place, r.CID, string(body)); err != nil {
		return err
	}
	if p.State != PullOpen || newer > 0 || r.Quiet {
		return nil
	}
	action := "opened"
	if earlier > 0 {
		action = "synchronize"
	}
	return t.pullEvent(r.Trigger, "pull:"+r.URI+":"+r.CID, action, a)
}

func (t *tx) pullEvent(tr pipeline.Trigger, key, action string, a *Accepted) error {
	if tr.Pull == nil {
		return errors.New("a round without a pull request")
	}
	pull := *tr.Pull
	pull.Action = action
	tr.Key, tr.Pull, tr.At = key, &pull, t.now
	var one int
	known, err := t.get("SELECT id FROM events WHERE key = ?", []any{key}, &one)
	if err != nil {
		return err
	}
	if known {
		a.Duplicate = true
		return nil
	}
	return t.putEvent(tr, nil, a)
}

// dropRound ends what waits of a round whose record is gone.
func (t *tx) dropRound(p Pull, uri string) error {
	n, err := t.exec("UPDATE rounds SET dropped = 1 WHERE uri = ? AND ticket = ? AND dropped = 0", uri, p.Ticket)
	if err != nil || n == 0 {
		return err
	}
	return t.endRounds(p, uri, "the round was withdrawn")
}

// endRounds ends what waits of a pull request, or of one round of it: events without a pipeline yet, and workflows
// that no runner has begun.
func (t *tx) endRounds(p Pull, round, why string) error {
	_, err := t.exec(`UPDATE events SET state = 'skipped', reason = ?, settled_at = ? WHERE state = 'pending'
		AND json_extract(body, '$.pull.ticket') = ? AND json_extract(body, '$.pull.action') IN ('opened', 'synchronize', 'reopened')
		AND json_extract(body, '$.retryOf') IS NULL AND (?4 = '' OR json_extract(body, '$.pull.round') = ?4)`, clip(why), micros(t.now), p.Ticket, round)
	if err != nil {
		return err
	}
	t.rings = true
	ws, err := t.refs(`SELECT w.pipeline, w.name FROM workflows w JOIN pipelines p ON p.id = w.pipeline
		WHERE w.status IN ('waiting', 'held') AND p.repo = ?1 AND p.kind = 'pull_request' AND json_extract(p.body, '$.pull.ticket') = ?2
		AND json_extract(p.body, '$.pull.action') IN ('opened', 'synchronize', 'reopened')
		AND (?3 = '' OR json_extract(p.body, '$.pull.round') = ?3)`, p.Repo, p.Ticket, round)
	if err != nil {
		return err
	}
	return t.cancelAll(ws, pipeline.CancelAsked{By: "spindle", As: pipeline.Cancelled, Reason: why})
}

// supersedeRounds ends what waits of older rounds of p's pull request.
func (t *tx) supersedeRounds(p pipeline.Pipeline, event int64) error {
	ws, err := t.refs(`SELECT w.pipeline, w.name FROM workflows w JOIN pipelines p ON p.id = w.pipeline
		WHERE w.status IN ('waiting', 'held') AND p.repo = ? AND p.kind = 'pull_request' AND p.event < ?
		AND json_extract(p.body, '$.pull.ticket') = ? AND json_extract(p.body, '$.pull.action') IN ('opened', 'synchronize', 'reopened')`,
		p.Repo, event, p.Trigger.Pull.Ticket)
	if err != nil {
		return err
	}
	return t.cancelAll(ws, pipeline.CancelAsked{By: "spindle", As: pipeline.Superseded,
		Reason: fmt.Sprintf("a newer round of the pull request started pipeline %s", p.ID)})
}
