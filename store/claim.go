package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spindle/pipeline"
	"spindle/rbac"
)

// maxExplained bounds how many waiting workflows one idle Claim gives a reason.
const maxExplained = 100

// Claim gives the holder the next workflow that it can run, or nil. Among the owners with work that fits, the
// one with the fewest running workflows comes first, then the one whose last turn is longest ago; of one
// owner the oldest comes first. Admission is decided again: what is no longer admitted ends as refused and is
// never handed out. When nothing fits, what waits is told why.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) (*Claimed, error) {
	if r.Holder == "" || r.TTL <= 0 {
		return nil, errors.New("store: claim: a holder and a positive TTL are needed")
	}
	return value(ctx, s, "claim for "+r.Holder, func(t *tx) (*Claimed, error) {
		owners, err := t.owners()
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			if r.PerOwner > 0 && o.active >= r.PerOwner {
				continue
			}
			c, err := t.claimFrom(o.did, r)
			if c != nil || err != nil {
				return c, err
			}
		}
		return nil, t.explain(r)
	})
}

type waitingOwner struct {
	did    string
	active int
}

// owners lists the owners with waiting workflows, in the order of their turns. Each step of the recursion
// seeks the next owner in the index, so that one owner's thousand workflows cost as much as one.
func (t *tx) owners() ([]waitingOwner, error) {
	rows, err := t.query(`WITH RECURSIVE o (owner) AS (
			SELECT min(owner) FROM workflows WHERE status = 'waiting' AND gate = ''
			UNION ALL SELECT (SELECT min(owner) FROM workflows WHERE status = 'waiting' AND gate = '' AND owner > o.owner) FROM o WHERE o.owner IS NOT NULL)
		SELECT o.owner, (SELECT count(*) FROM workflows a WHERE a.owner = o.owner AND a.status IN ('preparing', 'running')) AS active
		FROM o LEFT JOIN turns t ON t.owner = o.owner WHERE o.owner IS NOT NULL
		ORDER BY active, coalesce(t.turn, 0),
			(SELECT min(ready_at) FROM workflows w WHERE w.owner = o.owner AND w.status = 'waiting' AND w.gate = ''), o.owner`)
	return collect(rows, err, "read the owners' turns", func(scan func(...any) error) (o waitingOwner, err error) {
		return o, scan(&o.did, &o.active)
	})
}

const fits = `engine IN (SELECT value FROM json_each(?2))
	AND (labels = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.value NOT IN (SELECT value FROM json_each(?3))))`

func (t *tx) claimFrom(owner string, r ClaimRequest) (*Claimed, error) {
	engines, labels := list(r.Engines), list(r.Labels)
	for {
		next, err := t.refs(`SELECT pipeline, name FROM workflows WHERE status = 'waiting' AND gate = '' AND owner = ?1 AND `+fits+`
			ORDER BY ready_at, created_at, pipeline, position LIMIT 1`, owner, engines, labels)
		if err != nil || len(next) == 0 {
			return nil, err
		}
		w, err := t.workflow(next[0])
		if err != nil {
			return nil, err
		}
		d, err := t.startable(w)
		if err != nil {
			return nil, err
		}
		if !d.Allowed {
			if _, err := t.apply(w, pipeline.CancelAsked{By: "spindle", As: pipeline.Refused, Reason: d.Sentence}); err != nil {
				return nil, err
			}
			continue
		}
		if blocked, err := t.blocked(w); blocked || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if c, err := t.lease(w, r); c != nil || err != nil {
			return c, err
		}
	}
}

// startable decides by the policy and the binding of this moment.
func (t *tx) startable(w workflow) (rbac.Decision, error) {
	d, _, err := t.admit(pipeline.Pipeline{Repo: w.repo, Owner: w.owner}, nil)
	return d, err
}

// lease gives w out. It returns nil when the spec of w is not the one that was planned any more: w ends with that
// reason, and the work behind it goes on.
func (t *tx) lease(w workflow, r ClaimRequest) (*Claimed, error) {
	w, err := t.apply(w, pipeline.Leased{Holder: r.Holder, Until: t.now.Add(r.TTL)})
	if err != nil {
		return nil, err
	}
	if err := t.exec1("UPDATE state SET turn = turn + 1 WHERE id = 1"); err != nil {
		return nil, err
	}
	if err := t.exec1(`INSERT INTO turns (owner, turn) SELECT ?, turn FROM state WHERE true
		ON CONFLICT (owner) DO UPDATE SET turn = excluded.turn`, w.owner); err != nil {
		return nil, err
	}
	w.Spec, err = t.spec(w)
	if errors.Is(err, ErrCorrupt) {
		t.s.log.Error("a stored spec is damaged; its workflow ends", "pipeline", w.Pipeline, "workflow", w.Name)
		_, err := t.apply(w, pipeline.Lost{Epoch: w.Epoch, Reason: damagedSpec})
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	p, err := t.pipeline(w.Pipeline, false)
	if err != nil {
		return nil, err
	}
	c := &Claimed{Lease: w.lease(), Pipeline: p, Workflow: w.Workflow}
	if c.Needs, err = t.results(w); err != nil {
		return nil, err
	}
	if w.Attempt > 1 {
		if _, err := t.get("SELECT outcome, reason FROM attempts WHERE pipeline = ? AND workflow = ? AND attempt = ?",
			[]any{string(w.Pipeline), w.Name, w.Attempt - 1}, &c.Before.Status, &c.Before.Reason); err != nil {
			return nil, err
		}
	}
	if _, err := t.get("SELECT rkey FROM repos WHERE did = ?", []any{p.Repo}, &c.Rkey); err != nil {
		return nil, err
	}
	return c, nil
}

// explain leaves a reason on waiting workflows that have none and that r could not take.
func (t *tx) explain(r ClaimRequest) error {
	rows, err := t.query("SELECT "+workflowColumns+" FROM workflows WHERE status = 'waiting' AND gate = '' AND reason = '' LIMIT ?", maxExplained)
	ws, err := collect(rows, err, "read what waits without a reason", scanWorkflow)
	if err != nil {
		return err
	}
	for _, w := range ws {
		reason := why(w, r)
		if err := t.exec1("UPDATE workflows SET reason = ? WHERE pipeline = ? AND name = ?", reason, string(w.Pipeline), w.Name); err != nil {
			return err
		}
		if err := t.change(w.Pipeline, w.repo, w.Name, -1, w.Status, reason, 0); err != nil {
			return err
		}
	}
	return nil
}

func why(w workflow, r ClaimRequest) string {
	if !slices.Contains(r.Engines, w.Engine) {
		return clip(fmt.Sprintf("no runner offers engine %q (there are: %s); the spindle's owner can add one, or choose another in the workflow file",
			w.Engine, strings.Join(r.Engines, ", ")))
	}
	for _, l := range w.Labels {
		if !slices.Contains(r.Labels, l) {
			have := strings.Join(r.Labels, ", ")
			if have == "" {
				have = "none"
			}
			return clip(fmt.Sprintf("no runner has label %q (there are: %s); the spindle's owner can add it to a runner, or edit runs_on in the workflow file", l, have))
		}
	}
	return fmt.Sprintf("%s already runs %d workflows at once, which is the limit here; this one starts when one of them ends", w.owner, r.PerOwner)
}

// Renew extends the lease and tells who asked for an end, if anybody did. ErrStale: the holder must stop.
func (s *Store) Renew(ctx context.Context, l pipeline.Lease, ttl time.Duration) (cancelBy string, until time.Time, err error) {
	type renewed struct {
		by    string
		until time.Time
	}
	r, err := value(ctx, s, fmt.Sprintf("renew %s/%s", l.Pipeline, l.Workflow), func(t *tx) (renewed, error) {
		w, err := t.leased(l)
		if err != nil {
			return renewed{}, err
		}
		until := t.now.Add(ttl)
		return renewed{w.CancelBy, until}, t.exec1("UPDATE workflows SET lease_until = ? WHERE pipeline = ? AND name = ?",
			micros(until), string(w.Pipeline), w.Name)
	})
	return r.by, r.until, err
}

// MarkReleased notes, before it happens, that secrets or a token are handed to the attempt; it is then never
// repeated by itself. What is no longer admitted gets a *Refusal and must be handed nothing.
func (s *Store) MarkReleased(ctx context.Context, l pipeline.Lease) error {
	return s.write(ctx, fmt.Sprintf("release secrets to %s/%s", l.Pipeline, l.Workflow), func(t *tx) error {
		w, err := t.leased(l)
		if err != nil {
			return err
		}
		d, err := t.startable(w)
		if err != nil {
			return err
		}
		if !d.Allowed {
			return &Refusal{d}
		}
		if err := t.exec1("UPDATE workflows SET released = 1 WHERE pipeline = ? AND name = ?", string(w.Pipeline), w.Name); err != nil {
			return err
		}
		return t.exec1("UPDATE attempts SET released = 1 WHERE pipeline = ? AND workflow = ? AND attempt = ?",
			string(w.Pipeline), w.Name, w.Attempt)
	})
}

// Recover ends the attempts whose holder begins with holderPrefix, at the start of the process that replaces
// those holders. An attempt is repeated unless it was handed secrets or a token, or was the last allowed.
func (s *Store) Recover(ctx context.Context, holderPrefix string) (requeued, failed []pipeline.Lease, err error) {
	if holderPrefix == "" {
		return nil, nil, errors.New("store: recover: the holder's prefix is empty")
	}
	sw, err := value(ctx, s, "recover "+holderPrefix, func(t *tx) (sw Swept, err error) {
		lost, err := t.refs(`SELECT pipeline, name FROM workflows WHERE status IN ('preparing', 'running')
			AND substr(holder, 1, length(?1)) = ?1`, holderPrefix)
		if err != nil {
			return sw, err
		}
		return sw, t.lose(lost, "interrupted by a restart of the spindle", &sw)
	})
	return sw.Requeued, sw.Failed, err
}

// Expired sweeps what has run out: leases past their end and margin (the rule of Recover), approvals and
// runners waited for too long.
func (s *Store) Expired(ctx context.Context) (Swept, error) {
	return value(ctx, s, "sweep", func(t *tx) (sw Swept, err error) {
		lost, err := t.refs("SELECT pipeline, name FROM workflows WHERE status IN ('preparing', 'running') AND lease_until < ?",
			micros(t.now.Add(-t.s.c.LeaseMargin)))
		if err != nil {
			return sw, err
		}
		if err := t.lose(lost, "the runner stopped answering", &sw); err != nil {
			return sw, err
		}
		for _, x := range []struct {
			q, reason string
			before    time.Time
		}{
			{"SELECT pipeline, name FROM workflows WHERE status = 'held' AND held_until < ? LIMIT 1000",
				"nobody approved it in time; push again or retry to ask again", t.now},
			{"SELECT pipeline, name FROM workflows WHERE status = 'waiting' AND gate = '' AND ready_at < ? LIMIT 1000",
				fmt.Sprintf("no runner took it within %s; retry once there is one", t.s.c.WaitFor), t.now.Add(-t.s.c.WaitFor)},
		} {
			old, err := t.refs(x.q, micros(x.before))
			if err != nil {
				return sw, err
			}
			n, err := t.cancelEach(old, pipeline.CancelAsked{By: "spindle", As: pipeline.Expired, Reason: x.reason})
			if err != nil {
				return sw, err
			}
			sw.Expired += n
		}
		return sw, nil
	})
}

func (t *tx) lose(rs []ref, reason string, sw *Swept) error {
	for _, r := range rs {
		w, err := t.workflow(r)
		if err != nil {
			return err
		}
		again, text := t.lost(w, reason+" (not your code)")
		l := w.lease()
		w, err = t.apply(w, pipeline.Lost{Epoch: w.Epoch, Reason: text, Again: again})
		if err != nil {
			return err
		}
		if w.Status == pipeline.Waiting {
			sw.Requeued = append(sw.Requeued, l)
		} else {
			sw.Failed = append(sw.Failed, l)
		}
	}
	return nil
}

// list is a JSON array for json_each.
func list[S ~string](ss []S) string {
	b, err := json.Marshal(append([]S{}, ss...))
	if err != nil { // strings always marshal
		return "[]"
	}
	return string(b)
}
