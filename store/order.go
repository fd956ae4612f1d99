package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"spindle/pipeline"
	wf "spindle/workflow"
)

// maxOutputs bounds what one workflow hands on: the sum of the names and values in bytes.
const maxOutputs = 64 << 10

// checkOrder refuses needs that go in a circle: such workflows would wait for ever.
func checkOrder(ws []pipeline.Workflow) error {
	waits := map[string][]string{}
	for _, w := range ws {
		if len(w.Rules.WaitsFor) > 0 && w.Status == pipeline.Waiting || w.Status == pipeline.Held {
			waits[w.Name] = w.Rules.WaitsFor
		}
	}
	for len(waits) > 0 {
		before := len(waits)
		for name, needs := range waits {
			if !slices.ContainsFunc(needs, func(n string) bool { _, open := waits[n]; return open }) {
				delete(waits, name)
			}
		}
		if len(waits) == before {
			names := make([]string, 0, len(waits))
			for name := range waits {
				names = append(names, name)
			}
			return fmt.Errorf("%w: the workflows %q wait for each other", ErrConflict, slices.Sorted(slices.Values(names)))
		}
	}
	return nil
}

func encodeRules(r pipeline.Rules) (string, error) {
	b, err := json.Marshal(r)
	if err != nil || string(b) == "{}" {
		return "", err
	}
	return string(b), nil
}

// order writes down who waits for whom in p, whose workflows are stored, and decides at once what can be: some may
// wait for what has ended, such as an invalid file or a workflow of the pipeline that p repeats.
func (t *tx) order(p *pipeline.Pipeline) error {
	changed := false
	for _, w := range p.Workflows {
		for _, need := range w.Rules.WaitsFor {
			source, err := t.source(p, need)
			if err != nil {
				return err
			}
			if err := t.exec1("INSERT INTO needs (pipeline, workflow, need, source) VALUES (?, ?, ?, ?)",
				string(p.ID), w.Name, need, string(source)); err != nil {
				return err
			}
		}
		changed = changed || w.Gate == pipeline.GateNeeds || w.Rules.Group != "" && !w.Status.Terminal()
	}
	if !changed {
		return nil
	}
	for i := range p.Workflows {
		w, err := t.workflow(ref{p.ID, p.Workflows[i].Name})
		if err != nil {
			return err
		}
		switch {
		case w.Status == pipeline.Waiting && w.Gate == pipeline.GateNeeds:
			_, err = t.decide(w)
		case w.Status == pipeline.Waiting && w.Gate == pipeline.GateOpen && w.Rules.Group != "":
			_, err = t.enterGroup(w)
		}
		if err != nil {
			return err
		}
	}
	// What was decided about one may have changed another.
	for i, old := range p.Workflows {
		w, err := t.workflow(ref{p.ID, old.Name})
		if err != nil {
			return err
		}
		w.Spec = old.Spec
		p.Workflows[i] = w.Workflow
	}
	now, err := t.pipeline(p.ID, false)
	p.Status, p.FinishedAt = now.Status, now.FinishedAt
	return err
}

// maxRepeats bounds how many pipelines a chain of repetitions is followed back.
const maxRepeats = 100

// source is the pipeline whose workflow called need counts for p: p itself, else the nearest one that it repeats.
// Empty means that there is none.
func (t *tx) source(p *pipeline.Pipeline, need string) (pipeline.ID, error) {
	if slices.ContainsFunc(p.Workflows, func(w pipeline.Workflow) bool { return w.Name == need }) {
		return p.ID, nil
	}
	id := p.Trigger.RetryOf
	for range maxRepeats {
		if id == "" {
			return "", nil
		}
		known, err := t.get("SELECT 1 FROM workflows WHERE pipeline = ? AND name = ? AND repo = ?", []any{string(id), need, p.Repo}, new(int))
		if err != nil || known {
			return id, err
		}
		var body string
		if _, err := t.get("SELECT body FROM pipelines WHERE id = ?", []any{string(id)}, &body); err != nil {
			return "", err
		}
		tr, err := trigger(body, nil)
		if err != nil {
			return "", err
		}
		id = tr.RetryOf
	}
	return "", nil
}

// ordered does what follows for others from the change of a workflow.
func (t *tx) ordered(before workflow, after *workflow) error {
	moved := before.Status != after.Status || before.Gate != after.Gate
	if after.Rules.Group != "" && moved {
		if before.Status.Active() && !after.Status.Active() {
			if err := t.leaveGroup(*after); err != nil {
				return err
			}
		}
		entered := before.Status.Active() || before.Gate != pipeline.GateOpen && before.Gate != pipeline.GateGroup
		if entered && after.Status == pipeline.Waiting && after.Gate == pipeline.GateOpen {
			w, err := t.enterGroup(*after)
			if err != nil {
				return err
			}
			*after = w
		}
	}
	if before.Status.Terminal() == after.Status.Terminal() {
		return nil
	}
	rs, err := t.refs("SELECT pipeline, workflow FROM needs WHERE source = ? AND need = ?", string(after.Pipeline), after.Name)
	if err != nil {
		return err
	}
	for _, r := range rs {
		w, err := t.workflow(r)
		if err != nil {
			return err
		}
		if w.Status != pipeline.Waiting || w.Gate != pipeline.GateNeeds || t.ending[r] {
			continue
		}
		if _, err := t.decide(w); err != nil {
			return err
		}
	}
	return nil
}

// need is a workflow that another one waits for.
type need struct {
	name    string
	status  pipeline.Status // Skipped for one that does not exist
	outputs string
}

func (t *tx) needs(w workflow) ([]need, error) {
	if len(w.Rules.WaitsFor) == 0 {
		return nil, nil
	}
	rows, err := t.query(`SELECT n.need, coalesce(w.status, 'skipped'), coalesce(o.body, '') FROM needs n
		LEFT JOIN workflows w ON w.pipeline = n.source AND w.name = n.need
		LEFT JOIN outputs o ON o.pipeline = n.source AND o.workflow = n.need
		WHERE n.pipeline = ? AND n.workflow = ? ORDER BY n.need`, string(w.Pipeline), w.Name)
	return collect(rows, err, "read what a workflow needs", func(scan func(...any) error) (n need, err error) {
		return n, scan(&n.name, &n.status, &n.outputs)
	})
}

// results are the results of what w waited for, by planned name.
func (t *tx) results(w workflow) (map[string]wf.Need, error) {
	ns, err := t.needs(w)
	if err != nil || len(ns) == 0 {
		return nil, err
	}
	out := make(map[string]wf.Need, len(ns))
	for _, n := range ns {
		x := wf.Need{Result: wf.Skipped}
		if o, ended := wf.OutcomeOf(n.status); ended {
			x.Result = o
		}
		if n.outputs != "" {
			if err := json.Unmarshal([]byte(n.outputs), &x.Outputs); err != nil {
				return nil, fmt.Errorf("%w: the outputs of %q", ErrCorrupt, n.name)
			}
		}
		out[n.name] = x
	}
	return out, nil
}

// decide decides on w, which waits for others, if all of them have ended.
func (t *tx) decide(w workflow) (workflow, error) {
	ns, err := t.needs(w)
	if err != nil {
		return w, err
	}
	var open []string
	for _, n := range ns {
		if !n.status.Terminal() {
			open = append(open, n.name)
		}
	}
	if len(open) > 0 {
		if len(open) == len(ns) {
			return w, nil
		}
		return t.apply(w, pipeline.Remains{WaitsFor: open})
	}
	f, err := t.decision(w)
	if err != nil {
		return w, err
	}
	return t.apply(w, f)
}

// decision asks the stored definition of w what is to be done now.
func (t *tx) decision(w workflow) (pipeline.Decided, error) {
	f := pipeline.Decided{Hold: t.s.c.HoldFor}
	var spec wf.Spec
	raw, err := t.spec(w)
	if err == nil {
		err = json.Unmarshal(raw, &spec)
	}
	if err != nil && (errors.Is(err, ErrCorrupt) || raw != nil) {
		t.s.log.Error("a stored spec is damaged; its workflow ends", "pipeline", w.Pipeline, "workflow", w.Name)
		f.As, f.Reason = pipeline.Error, damagedSpec
		return f, nil
	}
	if err != nil {
		return f, err
	}
	p, err := t.pipeline(w.Pipeline, false)
	if err != nil {
		return f, err
	}
	ended, err := t.results(w)
	if err != nil {
		return f, err
	}
	d := spec.Decide(p.Trigger, ended)
	f.Run, f.As, f.Reason = d.Run, pipeline.Skipped, d.Why
	if d.Fault {
		f.As = pipeline.Error
	}
	return f, nil
}

// damagedSpec is what people are told of a workflow whose stored definition is not the one that was planned.
const damagedSpec = "the stored plan of this workflow is damaged and was not run; push again"

// spec reads the stored definition of w; ErrCorrupt when it is not the one that was planned.
func (t *tx) spec(w workflow) ([]byte, error) {
	var spec, sum []byte
	if _, err := t.get("SELECT spec, spec_sum FROM workflows WHERE pipeline = ? AND name = ?",
		[]any{string(w.Pipeline), w.Name}, &spec, &sum); err != nil {
		return nil, err
	}
	if have := sha256.Sum256(spec); !bytes.Equal(have[:], sum) {
		return nil, fmt.Errorf("%w: the spec of %s/%s is not the one that was planned", ErrCorrupt, w.Pipeline, w.Name)
	}
	return spec, nil
}

// settled is f, told by the attempt that holds the lease of w, with what the store adds: whether another attempt
// follows, and the outputs, which it writes.
func (t *tx) settled(w workflow, f pipeline.Fact) (pipeline.Fact, error) {
	switch f := f.(type) {
	case pipeline.Lost:
		if w.Epoch == f.Epoch && w.Status.Active() && f.Again {
			f.Again, f.Reason = t.lost(w, f.Reason)
		}
		return f, nil
	case pipeline.Finished:
		if !w.Status.Active() || w.Epoch != f.Epoch {
			return f, nil // it will be refused
		}
		again, of := w.Repeats(f.Status, false, w.released, t.s.c.MaxAttempts)
		if f.Again = again; again {
			f.Reason = fmt.Sprintf("%s; attempt %d of %d follows", cmp.Or(f.Reason, string(f.Status)), w.Attempt+1, of)
		}
		if len(f.Outputs) == 0 || again {
			return f, nil
		}
		return t.putOutputs(w, f)
	}
	return f, nil
}

// putOutputs stores the outputs of f. More than there is room for is a failure of the steps that wrote them.
func (t *tx) putOutputs(w workflow, f pipeline.Finished) (pipeline.Finished, error) {
	size := 0
	for k, v := range f.Outputs {
		size += len(k) + len(v)
	}
	if size > maxOutputs {
		if f.Status == pipeline.Passed {
			f.Status, f.Reason = pipeline.Failed, fmt.Sprintf("its outputs have %d bytes, more than the %d that a workflow may hand on; write them to an artifact", size, maxOutputs)
		}
		return f, nil
	}
	b, err := json.Marshal(f.Outputs)
	if err != nil {
		return f, err
	}
	return f, t.exec1("INSERT INTO outputs (pipeline, workflow, body) VALUES (?, ?, ?)", string(w.Pipeline), w.Name, string(b))
}

// lost tells whether the attempt of w, which is lost for that reason, is repeated, and says so.
func (t *tx) lost(w workflow, reason string) (again bool, text string) {
	again, of := w.Repeats(pipeline.Error, true, w.released, t.s.c.MaxAttempts)
	switch {
	case again:
		reason += fmt.Sprintf("; attempt %d of %d follows", w.Attempt+1, of)
	case w.released && w.Rules.Retry == nil:
		reason += "; it had been given secrets or a token, so it is not repeated by itself"
	}
	return again, reason
}
