package workflow

import (
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
)

// Changed are the files that a trigger changed, as paths from the top of the repository. Known is false
// when that could not be found out; conditions on paths match then, for it is better to run once too often.
type Changed struct {
	Files []string
	Known bool
}

// maxChanged is how many changed files are compared; more count as unknown.
const maxChanged = 10_000

// Match tells whether t starts s, and if not, why, in one sentence. Any condition may match; a workflow
// without conditions, and a manual run, always does. defaultBranch is the repository's, or empty when
// unknown: schedules run there only.
func (s *Spec) Match(t pipeline.Trigger, defaultBranch string, c Changed) (bool, string) {
	return s.match(t, defaultBranch, c, newWork())
}

func (s *Spec) match(t pipeline.Trigger, defaultBranch string, c Changed, w *work) (bool, string) {
	if t.Kind == pipeline.Manual || len(s.When) == 0 {
		return true, ""
	}
	m := matcher{trigger: t, defaultBranch: defaultBranch, changed: c, work: w}
	best := mismatch{}
	var whys []string
	for _, cond := range s.When {
		no := m.condition(cond)
		switch {
		case no.why == "":
			return true, ""
		case no.got > best.got || len(whys) == 0:
			best, whys = no, []string{no.why}
		case no.got == best.got && !slices.Contains(whys, no.why):
			whys = append(whys, no.why)
		}
	}
	if best.got == 0 {
		return false, "wants event " + or(s.events()) + ", got " + clean(string(t.Kind), 40)
	}
	if len(whys) > 3 {
		whys = append(whys[:3], "others")
	}
	return false, strings.Join(whys, "; or ")
}

// events are those that some condition of s names.
func (s *Spec) events() []string {
	var out []string
	for _, c := range s.When {
		for _, e := range c.Event {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

// mismatch says why a condition does not match, and how many of its parts did before that.
type mismatch struct {
	why string
	got int
}

// matcher compares conditions with one trigger.
type matcher struct {
	trigger       pipeline.Trigger
	defaultBranch string
	changed       Changed
	work          *work
}

// condition returns the zero mismatch when c matches.
func (m matcher) condition(c Condition) mismatch {
	t := m.trigger
	if !slices.Contains(c.Event, string(t.Kind)) {
		return mismatch{"wants event " + or(c.Event) + ", got " + clean(string(t.Kind), 40), 0}
	}
	switch t.Kind {
	case pipeline.Push:
		if why := m.ref(c); why != "" {
			return mismatch{why, 1}
		}
	case pipeline.PullRequest:
		var p pipeline.Pull
		if t.Pull != nil {
			p = *t.Pull
		}
		if !covers(c.Branch, p.TargetBranch) {
			return mismatch{"wants a pull request to branch " + or(c.Branch) + ", got " + clean(p.TargetBranch, 60), 1}
		}
		types, action := c.Types, p.Action
		if len(types) == 0 {
			types = defaultActions()
		}
		if action == "" {
			action = Opened // what knots without actions tell of
		}
		if !slices.Contains(types, action) {
			return mismatch{"wants a pull request that was " + or(types) + ", got " + clean(action, 40), 2}
		}
	case pipeline.Schedule:
		if len(c.Schedule) == 0 {
			return mismatch{"has no schedule", 1}
		}
		if t.Ref != "" && m.defaultBranch != "" && t.Ref != "refs/heads/"+m.defaultBranch {
			return mismatch{"schedules run on branch " + clean(m.defaultBranch, 60) + ", got " + clean(t.RefName(), 60), 1}
		}
		return mismatch{}
	}
	if why := m.paths(c); why != "" {
		return mismatch{why, 3}
	}
	return mismatch{}
}

// ref compares a pushed branch or tag; what is neither never matches.
func (m matcher) ref(c Condition) string {
	name := m.trigger.RefName()
	got := clean(name, 60)
	switch m.trigger.RefType() {
	case "branch":
		switch {
		case covers(c.Branch, name):
			return ""
		case len(c.Branch) == 0 && len(c.Tag) > 0:
			return "wants tag " + or(c.Tag) + ", got branch " + got
		}
		return "wants branch " + or(c.Branch) + ", got " + got
	case "tag":
		switch {
		case covers(c.Tag, name):
			return ""
		case len(c.Tag) == 0:
			return "wants branch " + or(c.Branch) + ", got tag " + got
		}
		return "wants tag " + or(c.Tag) + ", got " + got
	}
	return "wants a branch or a tag, got " + got
}

// paths compares changed files; one must match.
func (m matcher) paths(c Condition) string {
	files := m.changed.Files
	if len(c.Paths) == 0 || !m.changed.Known || len(files) > maxChanged {
		return ""
	}
	for _, f := range files {
		if !m.work.spend(c.Paths, f) || covers(c.Paths, f) {
			return ""
		}
	}
	got := "nothing"
	if n := len(files); n > 0 {
		got = clean(files[0], 60)
		if n > 1 {
			got += fmt.Sprintf(" and %d more", n-1)
		}
	}
	return "wants paths " + or(c.Paths) + " (changed: " + got + ")"
}

// or is words for a sentence; none reads as such.
func or(words []string) string {
	switch {
	case len(words) == 0:
		return "none"
	case len(words) > 5:
		return clean(strings.Join(words[:5], ", "), 120) + fmt.Sprintf(" or %d more", len(words)-5)
	case len(words) == 1:
		return clean(words[0], 120)
	}
	last := len(words) - 1
	return clean(strings.Join(words[:last], ", ")+" or "+words[last], 120)
}
