package trigger

import (
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
	"spindle/workflow"
)

// CodeInput is the code of an event that is refused for its inputs.
const CodeInput = "InvalidInput"

// wrongInputs says to a person what is wrong with the inputs of a manual run.
func wrongInputs(list []*workflow.InputError) string {
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", e.Message, e.Fix)
	}
	return b.String()
}

// rules is what orders the workflow of s among others in a run that t starts. The error is a sentence for whoever wrote
// the file.
func rules(s *workflow.Spec, t pipeline.Trigger) (pipeline.Rules, error) {
	r := pipeline.Rules{WaitsFor: s.WaitsFor, DeploysTo: s.DeploysTo}
	if c := s.Concurrency; c != nil {
		group, err := c.Group.Expand(s.Facts(t, nil))
		switch {
		case err != nil:
			return r, fmt.Errorf("the group of concurrency cannot be named: %w", err)
		case group == "":
			return r, fmt.Errorf("the group of concurrency, %q, comes to an empty name in this run", string(c.Group))
		}
		r.Group, r.GroupCancel = group, c.Cancel
	}
	if a := s.Approval; a != nil {
		r.Approval = &pipeline.Approval{OwnerOnly: a.By == workflow.ByOwner, OthersOnly: a.OthersOnly, Expires: a.Expires}
	}
	if x := s.Retry; x != nil {
		r.Retry = &pipeline.Retry{Max: x.Max}
		for _, on := range x.On {
			r.Retry.On = append(r.Retry.On, pipeline.Fault(on))
		}
	}
	return r, nil
}

// repeated is the set of the workflows among ws that a repetition runs: all, or those named by only and whatever needs
// one of them, since it was decided by results that no longer count.
func repeated(ws []pipeline.Workflow, only []string) map[string]bool {
	out := make(map[string]bool, len(ws))
	for _, w := range ws {
		out[w.Name] = len(only) == 0 || slices.Contains(only, w.Name)
	}
	for again := len(only) > 0; again; {
		again = false
		for _, w := range ws {
			if !out[w.Name] && slices.ContainsFunc(w.Rules.WaitsFor, func(n string) bool { return out[n] }) {
				out[w.Name], again = true, true
			}
		}
	}
	return out
}
