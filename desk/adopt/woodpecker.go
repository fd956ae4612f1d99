package adopt

import (
	"fmt"
	"slices"
	"strings"

	"spindle/workflow"
)

// Woodpecker is what a workflow file of Woodpecker comes to.
func Woodpecker(name string, src []byte) (Result, error) {
	root, err := read(src)
	if err != nil {
		return Result{}, err
	}
	if root.get("steps") == nil && root.get("pipeline") == nil {
		return Result{}, fmt.Errorf("%w: it has no steps, so it is no file of Woodpecker", ErrSource)
	}
	w := &woodpecker{}
	base := strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(name, ".yml"), ".yaml"), ".")
	d := &draft{}
	for _, p := range root.pairs {
		switch p.key {
		case "when":
			w.when(p, d)
		case "steps", "pipeline":
			w.steps(p.value, d)
		case "depends_on":
			d.needs = p.value.list()
		case "matrix":
			w.matrix(p.value, d)
		case "labels":
			for _, l := range p.value.pairs {
				d.runsOn = append(d.runsOn, l.key+"="+l.value.text)
			}
		case "services":
			w.services(p.value, d)
		case "clone":
			w.note(p.line, "clone", "the commit is checked out by itself; depth and submodules are set with clone:")
		case "runs_on":
			w.note(p.line, "runs_on", "write if: always() or if: failure() at the workflow")
		case "skip_clone":
			w.note(p.line, "skip_clone", "write clone: {skip: true}")
		case "workspace", "variables", "version":
			w.note(p.line, p.key, "this has no counterpart; nothing to do in most cases")
		default:
			w.note(p.line, p.key, "this has no counterpart; see docs/workflow.md")
		}
	}
	if len(d.steps) == 0 {
		return Result{}, fmt.Errorf("%w: none of its steps has commands", ErrSource)
	}
	w.Files = []File{{Name: safe(base) + ".yml", Data: d.yaml()}}
	slices.SortStableFunc(w.Notes, func(a, b Note) int { return a.Line - b.Line })
	return w.Result, nil
}

type woodpecker struct {
	Result
	image string
}

func (w *woodpecker) when(p pair, d *draft) {
	list := p.value.items
	if p.value.isMap {
		list = []*node{p.value}
	}
	for _, c := range list {
		events := c.get("event").list()
		if len(events) == 0 {
			events = []string{"push", "pull_request"}
		}
		branch := c.get("branch").list()
		if c.get("branch") != nil && c.get("branch").isMap {
			branch = c.get("branch").get("include").list()
			for _, x := range c.get("branch").get("exclude").list() {
				branch = append(branch, "!"+x)
			}
		}
		paths := c.get("path").list()
		if v := c.get("path"); v != nil && v.isMap {
			paths = v.get("include").list()
			for _, x := range v.get("exclude").list() {
				paths = append(paths, "!"+x)
			}
		}
		if len(branch) == 0 {
			branch = []string{"**"}
		}
		for _, e := range events {
			out := condition{paths: paths}
			switch e {
			case "push", "pull_request":
				out.event, out.branch = e, branch
			case "tag":
				out.event, out.tag = "push", []string{"**"}
			case "manual":
				out.event, out.paths = "manual", nil
			case "cron":
				w.note(c.line, "event cron", "Woodpecker keeps the times on its server: write event: schedule with schedule: and cron:")
				continue
			case "pull_request_closed":
				out.event, out.branch, out.types = "pull_request", branch, []string{"closed", "merged"}
			default:
				w.note(c.line, "event "+e, "events are push, pull_request, manual and schedule")
				continue
			}
			d.when = append(d.when, out)
		}
		for _, k := range c.pairs {
			if !slices.Contains([]string{"event", "branch", "path", "cron"}, k.key) {
				w.note(k.line, "when "+k.key, "write it as if: with trigger, inputs and matrix; see docs/workflow.md")
			}
		}
	}
}

func (w *woodpecker) steps(v *node, d *draft) {
	add := func(name string, s *node) {
		out := step{name: name}
		if n := s.str("name"); n != "" {
			out.name = n
		}
		out.command = strings.Join(s.get("commands").list(), "\n")
		for _, p := range s.pairs {
			switch p.key {
			case "name", "commands":
			case "image":
				if s.get("commands") == nil {
					w.note(p.line, "the plugin "+p.value.text, "write what it does as a command")
				} else if w.image != p.value.text {
					w.image = p.value.text
					w.note(p.line, "image "+p.value.text, "steps share one machine: its tools come from the machine, or from image: of the workflow")
				}
			case "environment":
				out.env = w.env(p.value, d)
			case "secrets":
				for _, n := range p.value.list() {
					if n = upper(n); !slices.Contains(d.secrets, n) {
						d.secrets = append(d.secrets, n)
					}
				}
			case "directory":
				out.dir = strings.TrimPrefix(p.value.text, "./")
			case "failure":
				out.goOn = p.value.text == "ignore"
			case "when":
				switch st := p.value.get("status").list(); {
				case slices.Contains(st, "failure") && slices.Contains(st, "success"):
					out.cond = "always()"
				case slices.Contains(st, "failure"):
					out.cond = "failure()"
				default:
					w.note(p.line, "when of step "+out.name, "write it as if: with trigger, inputs and matrix; see docs/workflow.md")
				}
			case "depends_on":
				w.note(p.line, "depends_on of step "+out.name, "steps run in order; what shall run side by side goes into workflows of its own")
			default:
				w.note(p.line, p.key+" of step "+out.name, "this has no counterpart; see docs/workflow.md")
			}
		}
		if out.command != "" {
			// Woodpecker ends a step at its first command that fails.
			if strings.Contains(out.command, "\n") {
				out.command = "set -e\n" + out.command
			}
			out.command = names().Replace(out.command)
			d.steps = append(d.steps, out)
		}
	}
	for _, p := range v.pairs {
		add(p.key, p.value)
	}
	for _, s := range v.items {
		add("", s)
	}
}

// names are the variables that both know by another name.
func names() *strings.Replacer {
	return strings.NewReplacer("CI_COMMIT_SHA", "TANGLED_SHA", "CI_COMMIT_BRANCH", "TANGLED_REF_NAME", "CI_COMMIT_TAG", "TANGLED_REF_NAME",
		"CI_COMMIT_REF", "TANGLED_REF", "CI_PIPELINE_EVENT", "TANGLED_PIPELINE_KIND", "CI_WORKSPACE", "PWD", "CI_REPO_NAME", "TANGLED_REPO_NAME")
}

// env reads a mapping, or a list of NAME=value.
func (w *woodpecker) env(v *node, d *draft) []workflow.Env {
	var out []workflow.Env
	for _, p := range v.pairsOf() {
		if from := p.value.str("from_secret"); from != "" {
			from = upper(from)
			if !slices.Contains(d.secrets, from) {
				d.secrets = append(d.secrets, from)
			}
			if from != p.key {
				w.note(p.line, fmt.Sprintf("%s is the secret %s", p.key, from), fmt.Sprintf("steps find it as $%s; use that name, or give the secret the name %s", from, p.key))
			}
			continue
		}
		out = append(out, workflow.Env{Key: p.key, Value: p.value.text})
	}
	for _, kv := range v.list() {
		if k, val, ok := strings.Cut(kv, "="); ok {
			out = append(out, workflow.Env{Key: k, Value: val})
		}
	}
	return out
}

func (w *woodpecker) matrix(v *node, d *draft) {
	for _, a := range v.pairs {
		if a.key == "include" {
			d.include = cells(a.value)
			continue
		}
		d.matrix = append(d.matrix, axis{a.key, a.value.list()})
	}
	w.note(v.line, "${NAME} of the matrix", "steps see a cell as $SPINDLE_MATRIX_<NAME>")
}

func (w *woodpecker) services(v *node, d *draft) {
	add := func(name string, s *node) {
		d.services = append(d.services, service{name: safe(name), image: s.str("image"), env: w.env(s.get("environment"), d)})
	}
	for _, p := range v.pairs {
		add(p.key, p.value)
	}
	for _, s := range v.items {
		add(s.str("name"), s)
	}
}
