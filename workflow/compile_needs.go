package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// link refuses files whose needs cannot be met: those that name no file of the commit, and those in a circle.
func (c *compiler) link(groups []group) {
	names := make([]string, 0, len(groups))
	for _, g := range groups {
		names = append(names, g.name)
	}
	for _, g := range groups {
		e := c.entries[g.name]
		s := e.planned.Spec
		if s == nil {
			continue
		}
		for i, n := range s.Needs {
			if c.entries[n] != nil || c.in.Partial {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(names), func(x string) bool { return x == g.name })
			fix := "add the file " + Dir + n + ".yml, or remove the need"
			w := nearest(n, others)
			if w != "" {
				fix = "write " + w
			}
			e.planned.refuseAt(e.needs[i], codeNeeds, fix, "%s needs %s, but no workflow of this commit has that name%s", g.name, quoted(n), didYouMean(n, others))
		}
	}
	circles := map[string][]string{}
	for _, g := range groups {
		if c.entries[g.name].planned.Spec != nil {
			circles[g.name] = c.circle(g.name)
		}
	}
	for name, circle := range circles {
		if e := c.entries[name]; circle != nil {
			at := e.needs[slices.Index(e.spec.Needs, circle[1])]
			e.planned.refuseAt(at, codeNeeds, "remove one of these needs", "the needs go in a circle: %s", clean(strings.Join(circle, " needs "), 300))
		}
	}
}

// circle is a way along needs from name back to name, or nil. It is the shortest, and the first in the order of the
// file among those.
func (c *compiler) circle(name string) []string {
	from := map[string]string{}
	queue := []string{name}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		e := c.entries[at]
		if e == nil || e.planned.Spec == nil {
			continue
		}
		for _, n := range e.planned.Spec.Needs {
			if n == name {
				way := []string{name}
				for x := at; x != name; x = from[x] {
					way = append(way, x)
				}
				way = append(way, name)
				slices.Reverse(way)
				return way
			}
			if _, seen := from[n]; !seen {
				from[n] = at
				queue = append(queue, n)
			}
		}
	}
	return nil
}

// settle puts e into the plan, after everything that it needs.
func (c *compiler) settle(e *source) {
	if e.done {
		return
	}
	e.done = true // there are no circles left
	if !e.started {
		return
	}
	if e.planned.Spec == nil {
		e.settled, e.skip = Need{Result: Failure}, "it is invalid"
		c.put(e.planned)
		return
	}
	c.offered(e)
	c.carried(e)
	if e.planned.Spec == nil {
		e.settled, e.skip = Need{Result: Failure}, "it is invalid"
		c.put(e.planned)
		return
	}
	spec := *e.planned.Spec
	for _, n := range spec.Needs {
		x := c.entries[n]
		if x == nil { // in.Partial
			spec.WaitsFor = append(spec.WaitsFor, n)
			continue
		}
		c.settle(x)
		earlier, was := c.in.Earlier[n]
		switch {
		case !x.started && was:
			spec.Settled = append(spec.Settled, Settled{Name: n, Need: earlier})
		case !x.started:
			spec.Settled = append(spec.Settled, Settled{Name: n, Need: Need{Result: Skipped}, Why: x.why})
		case x.skip != "":
			spec.Settled = append(spec.Settled, Settled{Name: n, Need: x.settled, Why: x.skip})
		default:
			spec.WaitsFor = append(spec.WaitsFor, x.cells...)
		}
	}
	slices.Sort(spec.WaitsFor)
	if wrong := spec.give(c.in.Trigger); !c.in.All {
		c.plan.InputErrors = append(c.plan.InputErrors, wrong...)
	}
	c.spread(e, spec)
}

// spread plans spec once, or once for each cell of its matrix.
func (c *compiler) spread(e *source, spec Spec) {
	cells := [][]Env{nil}
	if spec.Matrix != nil {
		cells = spec.Matrix.Cells()
	}
	if n := len(c.plan.Workflows) + len(cells); n > c.lim.Workflows {
		at := e.matrix
		e.planned.refuseAt(at, codeLimit, "use smaller matrices, or fewer workflows", "this trigger would start more than the %d workflows allowed", c.lim.Workflows)
		e.settled, e.skip = Need{Result: Failure}, "it is invalid"
		c.put(e.planned)
		return
	}
	taken := map[string]bool{}
	var skips []string
	for i, cell := range cells {
		one, s := e.planned, spec
		if cell != nil {
			one.Name = cellName(e.name, cell, taken)
			s.Name = clean(s.Name+strings.TrimPrefix(one.Name, e.name), nameLimit+cellNameBytes)
			s.Cell = cell
		}
		if i > 0 {
			one.Diagnostics = nil
		}
		taken[one.Name] = true
		e.cells = append(e.cells, one.Name)
		one.Spec = &s
		if len(s.WaitsFor) == 0 {
			if d := s.Decide(c.in.Trigger, nil); !d.Run {
				one.Skip = d.Why
				skips = append(skips, d.Why)
			}
		}
		c.put(one)
	}
	if len(skips) == len(cells) {
		e.settled, e.skip = Need{Result: Skipped}, skips[0]
	}
}

// put adds p to the plan. Files come in the order of their names, however they need each other.
func (c *compiler) put(p Planned) {
	at := len(c.plan.Workflows)
	for at > 0 && c.plan.Workflows[at-1].Workflow > p.Workflow {
		at--
	}
	c.plan.Workflows = slices.Insert(c.plan.Workflows, at, p)
}

// inputs reports what is wrong with the inputs of a manual run.
func (c *compiler) inputs() {
	if len(c.in.Trigger.Inputs) > 0 {
		var specs []*Spec
		for _, w := range c.plan.Workflows {
			if w.Spec != nil {
				specs = append(specs, w.Spec)
			}
		}
		c.plan.InputErrors = append(c.plan.InputErrors, strangers(c.in.Trigger, specs)...)
	}
	for _, e := range c.plan.InputErrors {
		c.plan.Diagnostics = append(c.plan.Diagnostics, Diagnostic{Severity: Error, Code: codeInput, Message: e.Message, Fix: e.Fix})
	}
}

// offered makes e invalid when its engine is not one of those here.
func (c *compiler) offered(e *source) {
	have, want := c.in.Engines, e.spec.Engine
	if len(have) == 0 || slices.Contains(have, want) {
		return
	}
	fix := "engine: " + have[0] + ", or use a spindle that offers " + want
	if w := nearest(want, have); w != "" {
		fix = "engine: " + w
	}
	e.planned.refuseAt(e.engine, codeEngine, fix, "engine %s is not offered here (has: %s)%s", quoted(want), list(have), didYouMean(want, have))
}

// carried tells what of e is not carried out here, once for each feature.
func (c *compiler) carried(e *source) {
	if c.in.Capabilities == nil || e.planned.Spec == nil {
		return
	}
	told := map[Feature]bool{}
	for _, u := range e.uses {
		if told[u.feature] || c.in.Capabilities.Has(e.spec.Engine, u.feature) {
			continue
		}
		told[u.feature] = true
		what := "the key " + quoted(u.feature.key())
		if !u.feature.lenient() {
			e.planned.refuseAt(u.at, codeOffer, "remove it, or use a spindle that carries it out",
				"%s is not carried out by this server, and without it something else would run than what is written", what)
			continue
		}
		n := NotCarried{u.feature, u.at.line, u.at.column, fmt.Sprintf("%s is not carried out here by engine %s: %s", what, e.spec.Engine, u.feature.without())}
		e.spec.NotCarried = append(e.spec.NotCarried, n)
		e.planned.Diagnostics = append(e.planned.Diagnostics, Diagnostic{
			File: clean(e.planned.Path, 300), Line: n.Line, Column: n.Column, Severity: Warning, Code: warnHere, Message: n.Why,
			Fix: "do not rely on it here, or use a spindle that carries it out",
		})
	}
}
