package workflow

import (
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
)

// The actions of a pull request.
const (
	Opened      = "opened"
	Reopened    = "reopened"
	Synchronize = "synchronize"
	Closed      = "closed"
	Merged      = "merged"
)

func events() []string {
	return []string{string(pipeline.Push), string(pipeline.PullRequest), string(pipeline.Manual), string(pipeline.Schedule)}
}

func actions() []string { return []string{Opened, Reopened, Synchronize, Closed, Merged} }

// defaultActions are what a condition without types means: whatever brings new code.
func defaultActions() []string { return []string{Opened, Reopened, Synchronize} }

func (d *decoder) when(key string, at pos, v *node) []Condition {
	if v.kind == mapping {
		d.err(v.at, codeType, "start the condition with a dash: - event: push", `"when" must be a list of conditions, this is a mapping`)
		return nil
	}
	if v.kind == scalar {
		d.err(v.at, codeType, "write when: ["+conditionOf(v.text)+"]", `"when" must be a list of conditions, this is %s`, v)
		d.wrap(v, "["+conditionOf(v.text)+"]", events())
		return nil
	}
	items := d.sequence(key, at, v, d.lim.Conditions)
	if v.kind == sequence && len(v.items) == 0 {
		d.warn(v.at, warnUnused, "remove it, or add a condition", `an empty "when" is the same as none: every event starts the workflow`)
	}
	out := make([]Condition, 0, len(items))
	for i, n := range items {
		out = append(out, d.condition(fmt.Sprintf("condition %d", i+1), n))
	}
	return out
}

func (d *decoder) condition(where string, n *node) Condition {
	var c Condition
	if n.kind == scalar {
		d.err(n.at, codeType, "write "+conditionOf(n.text), "%s must be a mapping of keys, this is %s", where, n)
		d.wrap(n, conditionOf(n.text), events())
		return c
	}
	places := map[string]pos{}
	before := d.errors
	there := d.object(n, where, conditionKeys(), func(p pair) {
		places[p.key] = p.at
		switch p.key {
		case "event":
			c.Event = d.oneOf(p.key, p.at, p.value, events(), "event")
		case "branch":
			c.Branch = d.globs(p.key, p.at, p.value)
		case "tag":
			c.Tag = d.globs(p.key, p.at, p.value)
		case "types":
			c.Types = d.oneOf(p.key, p.at, p.value, actions(), "pull request type")
		case "paths":
			c.Paths = d.globs(p.key, p.at, p.value)
		case "schedule":
			c.Schedule = d.schedules(p.key, p.at, p.value)
		}
	})
	if there.has("event") && d.errors == before { // else what is missing may only be misspelt
		d.effects(c, places)
	}
	return c
}

// oneOf reads words that must be among known.
func (d *decoder) oneOf(key string, at pos, v *node, known []string, what string) []string {
	out := []string{}
	d.texts(key, at, v, wordsLimit, func(n *node, s string) {
		switch {
		case !slices.Contains(known, s):
			fix := "use " + list(known)
			w, alone := nearestAlone(s, known)
			if other := foreignEvent(s); other != "" && slices.Contains(known, other) {
				w, alone = other, other != string(pipeline.Push) // a tag is a push, but of a tag
			}
			ask := ""
			if w != "" {
				fix, ask = "write "+w, "; did you mean "+quoted(w)+"?"
			}
			if strings.EqualFold(s, "tag") {
				fix = `write push, and tag: ["**"] below it`
			}
			d.err(n.at, codeEvent, fix, "unknown %s %s (known: %s)%s", what, quoted(s), list(known), ask)
			if alone {
				d.mend(n.at, s, w)
			}
		case !slices.Contains(out, s):
			out = append(out, s)
		}
	})
	return out
}

// foreignEvent is the event that other systems call s, or "".
func foreignEvent(s string) string {
	switch strings.ToLower(s) {
	case "pr", "pull", "merge_request", "pull-request":
		return string(pipeline.PullRequest)
	case "workflow_dispatch", "dispatch", "web":
		return string(pipeline.Manual)
	case "cron":
		return string(pipeline.Schedule)
	case "tag", "commit":
		return string(pipeline.Push)
	}
	return ""
}

// effects warns of conditions that cannot match as written and of keys that change nothing.
func (d *decoder) effects(c Condition, places map[string]pos) {
	on := func(k pipeline.Kind) bool { return slices.Contains(c.Event, string(k)) }
	at := places["event"]
	if len(c.Event) == 0 {
		d.warn(at, warnNever, "event: push", `an empty "event" never matches`)
		return
	}
	if on(pipeline.Push) && len(c.Branch) == 0 && len(c.Tag) == 0 {
		d.warn(at, warnNever, `add branch: ["**"] for every branch, or tag: ["**"]`, `event push without "branch" or "tag" never matches a push`)
	}
	if on(pipeline.PullRequest) && len(c.Branch) == 0 {
		d.warn(at, warnNever, `add branch: ["**"] for every target branch`, `event pull_request without "branch" never matches a pull request`)
	}
	if on(pipeline.Schedule) && len(c.Schedule) == 0 {
		d.warn(at, warnNever, `add schedule: [{cron: "H 2 * * *"}]`, `event schedule without "schedule" is never due`)
	}
	for _, k := range []struct {
		key    string
		useful bool
		users  string
	}{
		{"branch", on(pipeline.Push) || on(pipeline.PullRequest), "push and pull_request"},
		{"tag", on(pipeline.Push), "push"},
		{"types", on(pipeline.PullRequest), "pull_request"},
		{"paths", on(pipeline.Push) || on(pipeline.PullRequest), "push and pull_request"},
		{"schedule", on(pipeline.Schedule), "schedule"},
	} {
		if where, ok := places[k.key]; ok && !k.useful {
			d.warn(where, warnUnused, "remove it, or change event", "%s has no effect with event %s; it is for %s", quoted(k.key), list(c.Event), k.users)
		}
	}
	if where, ok := places["paths"]; ok && len(c.Paths) == 0 {
		d.warn(where, warnUnused, "remove it, or add a pattern", `an empty "paths" is the same as none`)
	}
}
