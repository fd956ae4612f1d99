package workflow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"spindle/pipeline"
)

// Has tells whether the secret called name is among those chosen.
func (s Secrets) Has(name string) bool { return !s.Only || slices.Contains(s.Names, name) }

// StepSecrets is which secrets step i gets: its own list if it has one, else the workflow's. A step's list stands
// alone; it may name what the workflow's leaves out.
func (s *Spec) StepSecrets(i int) Secrets {
	if i >= 0 && i < len(s.Steps) && s.Steps[i].Secrets.Only {
		return s.Steps[i].Secrets
	}
	return s.Secrets
}

// CellEnvironment is the cell of the matrix as variables for the steps: SPINDLE_MATRIX_<KEY>, with the key in upper
// case and what no variable can hold as _.
func (s *Spec) CellEnvironment() []Env {
	out := make([]Env, 0, len(s.Cell))
	for _, c := range s.Cell {
		out = append(out, Env{"SPINDLE_MATRIX_" + upper(c.Key), c.Value})
	}
	return out
}

// InputVariable is the variable in which steps find the input called key.
func InputVariable(key string) string { return "TANGLED_INPUT_" + upper(key) }

// upper is key as a part of the name of a variable.
func upper(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// NeedVariable is the variable in which steps find the output called key of the workflow that theirs needs.
func NeedVariable(workflow, key string) string {
	return "SPINDLE_NEEDS_" + upper(workflow) + "_" + upper(key)
}

// NeedsEnvironment is the outputs of the needs as variables for the steps, sorted by name. ended is as for Decide.
func (s *Spec) NeedsEnvironment(ended map[string]Need) []Env {
	var out []Env
	needs := s.Facts(pipeline.Trigger{}, ended).Needs
	for _, n := range s.Needs {
		for k, v := range needs[n].Outputs {
			out = append(out, Env{NeedVariable(n, k), v})
		}
	}
	slices.SortFunc(out, func(a, b Env) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value)) })
	return out
}

// NextTimes are the next n times after after at which s is due, in order and without repeats, over all its schedules.
// seed spreads the H tokens.
func (s *Spec) NextTimes(seed string, after time.Time, n int) []time.Time {
	var out []time.Time
	for len(out) < n {
		var next time.Time
		for _, c := range s.When {
			for _, table := range c.Schedule {
				if t := table.Next(seed, after); !t.IsZero() && (next.IsZero() || t.Before(next)) {
					next = t
				}
			}
		}
		if next.IsZero() {
			break
		}
		out = append(out, next)
		after = next
	}
	return out
}
