package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"spindle/workflow"
)

// github is one file of Actions on its way.
type github struct {
	Result
	base string
	jobs map[string]string // job to the workflow that it becomes
}

// GitHub is what a workflow file of GitHub Actions comes to: a workflow for each job. name is the file's own.
func GitHub(name string, src []byte) (Result, error) {
	root, err := read(src)
	if err != nil {
		return Result{}, err
	}
	g := &github{base: safe(strings.TrimSuffix(strings.TrimSuffix(name, ".yml"), ".yaml")), jobs: map[string]string{}}
	jobs := root.get("jobs")
	if jobs == nil || !jobs.isMap || len(jobs.pairs) == 0 {
		return Result{}, fmt.Errorf("%w: it has no jobs, so it is no file of Actions", ErrSource)
	}
	for _, j := range jobs.pairs {
		g.jobs[j.key] = g.base
		if len(jobs.pairs) > 1 {
			g.jobs[j.key] = g.base + "-" + safe(j.key)
		}
	}
	top := draft{}
	for _, p := range root.pairs {
		switch p.key {
		case "name", "jobs":
		case "run-name":
			g.note(p.line, "run-name", "titles of runs are the commits' own; nothing to do")
		case "on", "true":
			g.on(p, &top)
		case "env":
			top.env = g.env(p.value, &top)
		case "permissions":
			g.note(p.line, "permissions", "a run has no token of the code host; ask for one with audience: if a service needs to know who runs")
		case "concurrency":
			g.concurrency(p, &top)
		case "defaults":
			g.note(p.line, "defaults", "write shell: and working_directory: at the steps")
		default:
			g.note(p.line, p.key, "this has no counterpart; see docs/workflow.md")
		}
	}
	for _, j := range jobs.pairs {
		d := top
		d.env, d.secrets, d.when = slices.Clone(top.env), slices.Clone(top.secrets), slices.Clone(top.when)
		d.name = root.str("name")
		if len(jobs.pairs) > 1 {
			d.name = strings.TrimSpace(d.name + " " + j.key)
		}
		g.job(j, &d)
		g.Files = append(g.Files, File{Name: g.jobs[j.key] + ".yml", Data: d.yaml()})
	}
	slices.SortStableFunc(g.Notes, func(a, b Note) int { return a.Line - b.Line })
	return g.Result, nil
}

func (g *github) on(p pair, d *draft) {
	v := p.value
	if !v.isMap {
		for _, e := range v.list() {
			g.event(e, p.line, nil, d)
		}
		return
	}
	for _, e := range v.pairs {
		g.event(e.key, e.line, e.value, d)
	}
}

func (g *github) event(name string, line int, v *node, d *draft) {
	c := condition{branch: v.get("branches").list(), paths: v.get("paths").list()}
	for key, to := range map[string]*[]string{"branches-ignore": &c.branch, "paths-ignore": &c.paths} {
		for _, x := range v.get(key).list() {
			*to = append(*to, "!"+x)
		}
	}
	switch name {
	case "push":
		c.event, c.tag = "push", v.get("tags").list()
		if len(c.branch)+len(c.tag) == 0 {
			c.branch, c.tag = []string{"**"}, []string{"**"}
		}
	case "pull_request", "pull_request_target":
		c.event = "pull_request"
		if len(c.branch) == 0 {
			c.branch = []string{"**"}
		}
		for _, t := range v.get("types").list() {
			if slices.Contains([]string{"opened", "reopened", "synchronize", "closed"}, t) {
				c.types = append(c.types, t)
			} else {
				g.note(line, "type "+t+" of pull_request", "types are opened, reopened, synchronize, closed, merged")
			}
		}
		if name == "pull_request_target" {
			g.note(line, name, "it became pull_request: code of strangers never runs with secrets here")
		}
	case "workflow_dispatch":
		c = condition{event: "manual"}
		for _, in := range v.get("inputs").pairsOf() {
			d.inputs = append(d.inputs, dispatchInput(in))
		}
	case "schedule":
		c = condition{event: "schedule"}
		for _, i := range v.itemsOf() {
			c.cron = append(c.cron, i.str("cron"))
		}
	default:
		g.note(line, "event "+name, "events are push, pull_request, manual and schedule")
		return
	}
	d.when = append(d.when, c)
}

func dispatchInput(in pair) input {
	out := input{key: in.key, kind: "string", def: in.value.str("default"), about: in.value.str("description"), options: in.value.get("options").list()}
	switch t := in.value.str("type"); t {
	case "boolean", "number", "choice":
		out.kind = t
	}
	out.required = in.value.str("required") == "true" && out.def == ""
	return out
}

func (n *node) pairsOf() []pair {
	if n == nil {
		return nil
	}
	return n.pairs
}

func (n *node) itemsOf() []*node {
	if n == nil {
		return nil
	}
	return n.items
}

func (g *github) concurrency(p pair, d *draft) {
	group := p.value.text
	if p.value.isMap {
		group = p.value.str("group")
		d.cancel = p.value.str("cancel-in-progress") == "true"
	}
	d.group = strings.NewReplacer("github.ref", "ref", "github.workflow", `"`+g.base+`"`).Replace(group)
	if rest := regexp.MustCompile(`\$\{\{\s*(ref|"[^"]*")\s*\}\}`).ReplaceAllString(d.group, ""); strings.Contains(rest, "${{") {
		g.note(p.line, "concurrency group "+group, "write it with ref, trigger.branch or inputs; see docs/workflow.md")
		d.group, d.cancel = "", false
	}
	d.group = regexp.MustCompile(`\$\{\{\s*"([^"]*)"\s*\}\}`).ReplaceAllString(d.group, "$1")
}

func (g *github) job(j pair, d *draft) {
	for _, p := range j.value.pairs {
		switch p.key {
		case "name":
			d.name = strings.TrimSpace(g.text(p.value.text, p.line, d))
		case "runs-on":
			for _, l := range p.value.list() {
				if !strings.HasPrefix(l, "ubuntu") && l != "self-hosted" && l != "linux" {
					g.note(p.line, "runs-on "+l, "name the labels of your runners with runs_on:")
				}
			}
		case "needs":
			for _, n := range p.value.list() {
				d.needs = append(d.needs, g.jobs[n])
			}
		case "if":
			g.cond(p, &d.cond)
		case "strategy":
			g.strategy(p.value, d)
		case "env":
			d.env = append(d.env, g.env(p.value, d)...)
		case "timeout-minutes":
			d.timeout = minutes(p.value.text)
		case "container":
			d.image = p.value.text
			if p.value.isMap {
				d.image = p.value.str("image")
			}
		case "services":
			for _, s := range p.value.pairs {
				d.services = append(d.services, service{name: safe(s.key), image: s.value.str("image"), env: g.env(s.value.get("env"), d)})
				for _, k := range s.value.pairs {
					if k.key != "image" && k.key != "env" && k.key != "ports" {
						g.note(k.line, k.key+" of service "+s.key, "write ready: with a command that succeeds once it can be used")
					}
				}
			}
		case "concurrency":
			g.concurrency(p, d)
		case "steps":
			for _, s := range p.value.items {
				g.step(s, d)
			}
		case "outputs":
			g.note(p.line, "outputs", "every line that a step writes to $SPINDLE_OUTPUT is an output: needs.<workflow>.outputs.<name>")
		case "environment":
			g.note(p.line, "environment", "write deploys_to: and its name")
		case "uses":
			g.note(p.line, "a workflow that is called", "copy its steps")
		default:
			g.note(p.line, p.key+" of job "+j.key, "this has no counterpart; see docs/workflow.md")
		}
	}
	if len(d.steps) == 0 {
		g.note(j.line, "job "+j.key+" has no step that maps", "write its steps")
		d.steps = []step{{name: "to be written", command: "echo 'nothing of this job could be taken over'; exit 1"}}
	}
}

func minutes(s string) string {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return ""
	}
	return s + "m"
}

func (g *github) strategy(v *node, d *draft) {
	for _, p := range v.pairs {
		if p.key != "matrix" {
			g.note(p.line, p.key+" of strategy", "cells run beside one another and do not end one another; nothing to do")
			continue
		}
		if !p.value.isMap {
			g.note(p.line, "a matrix that is computed", "write its axes into the file")
			continue
		}
		for _, a := range p.value.pairs {
			switch a.key {
			case "include":
				d.include = cells(a.value)
			case "exclude":
				d.exclude = cells(a.value)
			default:
				if list := a.value.list(); len(list) > 0 {
					d.matrix = append(d.matrix, axis{a.key, list})
				} else {
					g.note(a.line, "axis "+a.key+" of the matrix", "write its values as a list of texts")
				}
			}
		}
	}
}

func cells(v *node) [][]workflow.Env {
	var out [][]workflow.Env
	for _, i := range v.items {
		var c []workflow.Env
		for _, p := range i.pairs {
			c = append(c, workflow.Env{Key: p.key, Value: p.value.text})
		}
		out = append(out, c)
	}
	return out
}

func (g *github) env(v *node, d *draft) []workflow.Env {
	var out []workflow.Env
	for _, p := range v.pairsOf() {
		value := p.value.text
		if m := onlySecret().FindStringSubmatch(value); m != nil {
			if !slices.Contains(d.secrets, m[1]) {
				d.secrets = append(d.secrets, m[1])
			}
			if m[1] != p.key {
				g.note(p.line, fmt.Sprintf("%s is the secret %s", p.key, m[1]), fmt.Sprintf("steps find it as $%s; use that name, or give the secret the name %s", m[1], p.key))
			}
			continue
		}
		if strings.Contains(value, "${{") {
			g.note(p.line, fmt.Sprintf("the expression in %s: %s", p.key, value), "values are texts as they stand; let the command compute it")
			continue
		}
		out = append(out, workflow.Env{Key: p.key, Value: value})
	}
	return out
}
