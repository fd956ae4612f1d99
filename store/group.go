package store

import (
	"fmt"

	"spindle/pipeline"
)

// blocked lets w, the next in its turn, wait if another workflow of its group runs.
func (t *tx) blocked(w workflow) (bool, error) {
	if w.Rules.Group == "" {
		return false, nil
	}
	rs, err := t.refs(`SELECT pipeline, name FROM workflows WHERE repo = ? AND grp = ? AND status IN ('preparing', 'running') LIMIT 1`,
		w.repo, w.Rules.Group)
	if err != nil || len(rs) == 0 {
		return false, err
	}
	_, err = t.apply(w, pipeline.Blocked{Reason: fmt.Sprintf("waits for the group %s: held by %s of pipeline %s",
		w.Rules.Group, rs[0].workflow, rs[0].pipeline)})
	return true, err
}

// leaveGroup lets what waits for the end of w in its group start. Which of them does is decided when they are claimed.
func (t *tx) leaveGroup(w workflow) error {
	rs, err := t.refs(`SELECT pipeline, name FROM workflows WHERE repo = ? AND grp = ? AND status = 'waiting' AND gate = 'group'`,
		w.repo, w.Rules.Group)
	if err != nil {
		return err
	}
	for _, r := range rs {
		x, err := t.workflow(r)
		if err != nil {
			return err
		}
		if _, err := t.apply(x, pipeline.Freed{}); err != nil {
			return err
		}
	}
	return nil
}

// enterGroup settles who is the newest of w's group, now that w could start. Of those that wait only the newest
// pipeline's stay; those of one pipeline take turns. With cancel, a newer pipeline also ends what runs of older ones.
// Newer is the pipeline whose event was accepted later, whatever the clock said.
func (t *tx) enterGroup(w workflow) (workflow, error) {
	type other struct {
		ref
		status pipeline.Status
		newer  bool
	}
	rows, err := t.query(`SELECT o.pipeline, o.name, o.status, p.event > (SELECT event FROM pipelines WHERE id = ?1) FROM workflows o
		JOIN pipelines p ON p.id = o.pipeline
		WHERE o.repo = ?2 AND o.grp = ?3 AND o.grp <> '' AND o.pipeline <> ?1
		AND (o.status IN ('preparing', 'running') OR o.status = 'waiting' AND o.gate IN ('', 'group'))`,
		string(w.Pipeline), w.repo, w.Rules.Group)
	others, err := collect(rows, err, "read a group", func(scan func(...any) error) (o other, err error) {
		return o, scan(&o.pipeline, &o.workflow, &o.status, &o.newer)
	})
	if err != nil {
		return w, err
	}
	for _, o := range others {
		active := o.status.Active()
		switch {
		case o.newer && !active:
			return t.apply(w, pipeline.CancelAsked{By: "spindle", As: pipeline.Superseded,
				Reason: fmt.Sprintf("a newer one of the group %s waits: %s of pipeline %s", w.Rules.Group, o.workflow, o.pipeline)})
		case o.newer || active && !w.Rules.GroupCancel:
			continue
		}
		x, err := t.workflow(o.ref)
		if err != nil {
			return w, err
		}
		if x.Status.Terminal() {
			continue // by what the end of another one of them led to
		}
		if _, err := t.apply(x, pipeline.CancelAsked{By: "spindle", As: pipeline.Superseded,
			Reason: fmt.Sprintf("a newer one of the group %s came: %s of pipeline %s", w.Rules.Group, w.Name, w.Pipeline)}); err != nil {
			return w, err
		}
	}
	return w, nil
}
