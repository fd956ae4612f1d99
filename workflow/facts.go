package workflow

import (
	"path"
	"slices"
	"strings"

	"spindle/pipeline"
)

// Outcome is how a workflow, or everything before a step, ended, as expressions see it.
type Outcome string

// The outcomes.
const (
	Success   Outcome = "success"
	Failure   Outcome = "failure"
	Cancelled Outcome = "cancelled"
	Skipped   Outcome = "skipped"
)

func outcomes() []string {
	return []string{string(Success), string(Failure), string(Cancelled), string(Skipped)}
}

// OutcomeOf is what an ended workflow of status s counts as. ok is false while s is no end.
func OutcomeOf(s pipeline.Status) (o Outcome, ok bool) {
	switch s {
	case pipeline.Passed:
		return Success, true
	case pipeline.Failed, pipeline.Error, pipeline.Timeout, pipeline.Invalid:
		return Failure, true
	case pipeline.Cancelled, pipeline.Superseded, pipeline.Refused, pipeline.Expired:
		return Cancelled, true
	case pipeline.Skipped:
		return Skipped, true
	}
	return "", false
}

// worse is the outcome of two that happened both: failure counts before cancelled, then skipped, then success.
func worse(a, b Outcome) Outcome {
	for _, o := range []Outcome{Failure, Cancelled, Skipped} {
		if a == o || b == o {
			return o
		}
	}
	return Success
}

// Need is what expressions see of a workflow that came before. Outputs are what its steps wrote to
// $SPINDLE_OUTPUT.
type Need struct {
	Result  Outcome           `json:"result"`
	Outputs map[string]string `json:"outputs,omitempty"`
}

// Facts is everything that an expression can ask for. Whatever is not known is empty: "", 0 or false.
type Facts struct {
	Trigger pipeline.Trigger
	// Inputs declares the inputs and Given has their values; Cell is the cell of the matrix. All three are the Spec's.
	Inputs []Declared
	Given  []Env
	Cell   []Env
	// Needs are the ended needs by the name that the file gives them, without cells.
	Needs map[string]Need
	// Before is how what came before ended: of a workflow its needs, of a step the steps before it. success(),
	// failure() and cancelled() compare with it; empty counts as Success.
	Before Outcome
}

// Decision says whether a workflow or a step runs.
type Decision struct {
	Run bool
	// Why says in one sentence why it does not run; empty when it does.
	Why string
	// Fault is true when the expression could not be computed, so that what it decides on must not pass for skipped.
	Fault bool
}

// Decide tells whether the workflow runs, now that every workflow in WaitsFor has ended. ended has their results by
// planned name; one that is missing counts as skipped. Without an `if` a workflow runs when all its needs succeeded.
func (s *Spec) Decide(t pipeline.Trigger, ended map[string]Need) Decision {
	f := s.Facts(t, ended)
	d := s.If.decide(f)
	if d.Run || d.Fault || s.If.asksStatus() {
		return d
	}
	for _, n := range s.Needs {
		if r := f.Needs[n].Result; r != Success {
			return Decision{Why: s.needWhy(n, r)}
		}
	}
	return d
}

// needWhy says why a need of that result is in the way.
func (s *Spec) needWhy(name string, r Outcome) string {
	why := ""
	for _, x := range s.Settled {
		if x.Name == name && x.Why != "" {
			why = ": " + x.Why
		}
	}
	word := map[Outcome]string{Failure: "did not pass", Cancelled: "was cancelled"}[r]
	if word == "" {
		word = "was skipped"
	}
	return "it needs " + quoted(name) + ", which " + word + why
}

// DecideStep tells whether step i runs when its turn comes. needs are as for Decide; before is how the steps so far
// ended: Failure when one that does not continue on error did not pass, Cancelled when the run was asked to end, else
// Success. Without an `if` a step runs after Success.
func (s *Spec) DecideStep(i int, t pipeline.Trigger, ended map[string]Need, before Outcome) Decision {
	f := s.Facts(t, ended)
	f.Before = before
	d := s.Steps[i].If.decide(f)
	if !d.Run && !d.Fault && before != Success && before != "" && !s.Steps[i].If.asksStatus() {
		d.Why = map[Outcome]string{Failure: "an earlier step did not pass", Cancelled: "the run was asked to end"}[before]
	}
	return d
}

// Facts is what the expressions of s can ask for once the workflows in WaitsFor have ended. ended is as for Decide.
func (s *Spec) Facts(t pipeline.Trigger, ended map[string]Need) Facts {
	f := Facts{Trigger: t, Inputs: s.Inputs, Given: s.Given, Cell: s.Cell, Before: Success, Needs: make(map[string]Need, len(s.Needs))}
	for _, x := range s.Settled {
		f.Needs[x.Name] = x.Need
	}
	for _, planned := range s.WaitsFor { // sorted, so that of two cells with one output the same wins always
		name, _, _ := strings.Cut(planned, "[")
		n, ok := ended[planned]
		if !ok {
			n.Result = Skipped
		}
		sum, more := f.Needs[name]
		if !more {
			sum = Need{Result: n.Result, Outputs: map[string]string{}}
		}
		sum.Result = worse(sum.Result, n.Result)
		for k, v := range n.Outputs {
			sum.Outputs[k] = v
		}
		f.Needs[name] = sum
	}
	for _, n := range s.Needs {
		x, ok := f.Needs[n]
		if !ok {
			x.Result = Skipped
			f.Needs[n] = x
		}
		f.Before = worse(f.Before, x.Result)
	}
	return f
}

// lookup is the value of a name that the checker has let through, as what kind says it is.
func (f *Facts) lookup(name []string) value {
	t := f.Trigger
	switch strings.Join(name[:min(2, len(name))], ".") {
	case "ref", "trigger.ref":
		return textOf(eventRef(t))
	case "trigger.event":
		return textOf(string(t.Kind))
	case "trigger.branch":
		if t.Kind != pipeline.PullRequest && t.RefType() == "branch" {
			return textOf(t.RefName())
		}
		return textOf("")
	case "trigger.tag":
		if t.Kind != pipeline.PullRequest && t.RefType() == "tag" {
			return textOf(t.RefName())
		}
		return textOf("")
	case "trigger.sha":
		return textOf(t.Commit)
	case "trigger.actor":
		return textOf(t.Actor)
	case "trigger.pull":
		return f.pull(name[2])
	}
	switch name[0] {
	case "matrix":
		return textOf(find(f.Cell, name[1]))
	case "inputs":
		return f.input(name[1])
	case "needs":
		n := f.Needs[name[1]]
		if name[2] == "result" {
			return textOf(string(n.Result))
		}
		return textOf(n.Outputs[name[3]])
	}
	return textOf("")
}

func (f *Facts) pull(field string) value {
	p := pipeline.Pull{}
	if f.Trigger.Pull != nil {
		p = *f.Trigger.Pull
	}
	switch field {
	case "action":
		if p.Action == "" && f.Trigger.Pull != nil {
			return textOf(Opened) // what knots without actions tell of
		}
		return textOf(p.Action)
	case "source_branch":
		return textOf(p.SourceBranch)
	case "target_branch":
		return textOf(p.TargetBranch)
	case "source_repo":
		return textOf(p.SourceRepo)
	case "base":
		return textOf(p.Base)
	case "head":
		return textOf(p.Head)
	}
	return boolOf(f.Trigger.Pull != nil && p.SourceRepo != f.Trigger.Repo)
}

func (f *Facts) input(key string) value {
	text := find(f.Given, key)
	i := slices.IndexFunc(f.Inputs, func(d Declared) bool { return d.Key == key })
	if i < 0 {
		return textOf(text)
	}
	switch f.Inputs[i].Type {
	case InputBoolean:
		return boolOf(text == "true")
	case InputNumber:
		n, _ := parseNumber(text) // what is not given counts as 0
		return value{kind: kindNumber, number: n}
	}
	return textOf(text)
}

func find(list []Env, key string) string {
	for _, e := range list {
		if e.Key == key {
			return e.Value
		}
	}
	return ""
}

// eventRef names what a trigger runs on, so that different things have different names: a full ref, or of a pull
// request refs/pull/ and its id. The name of its source branch is no such name, since anybody can choose it.
func eventRef(t pipeline.Trigger) string {
	if t.Kind != pipeline.PullRequest || t.Pull == nil {
		return t.Ref
	}
	if t.Pull.Ticket != "" {
		return "refs/pull/" + path.Base(t.Pull.Ticket)
	}
	return "refs/pull/" + t.Pull.SourceRepo + "/" + t.Pull.SourceBranch
}
