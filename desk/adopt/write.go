package adopt

import (
	"regexp"
	"strings"
	"sync"

	"spindle/workflow"
)

// File is a workflow file that was made.
type File struct {
	// Name is the file's, without its folder.
	Name string
	Data []byte
}

// Note is something of the source that did not map.
type Note struct {
	// Line counts from 1 in the source.
	Line int
	// What did not map, and what to do about it.
	What, Do string
}

// Result is what a source comes to.
type Result struct {
	Files []File
	Notes []Note
}

func (r *Result) note(line int, what, do string) {
	r.Notes = append(r.Notes, Note{line, what, do})
}

// draft is a workflow in the making.
type draft struct {
	name     string
	comment  []string
	when     []condition
	needs    []string
	cond     string
	matrix   []axis
	include  [][]workflow.Env
	exclude  [][]workflow.Env
	runsOn   []string
	image    string
	env      []workflow.Env
	secrets  []string
	inputs   []input
	timeout  string
	group    string
	cancel   bool
	depth    string
	services []service
	arts     []artifact
	steps    []step
}

type condition struct {
	event              string
	branch, tag, paths []string
	types              []string
	cron               []string
}

type axis struct {
	key    string
	values []string
}

type input struct {
	key, kind, def, about string
	options               []string
	required              bool
}

type service struct {
	name, image string
	env         []workflow.Env
}

type artifact struct {
	name  string
	paths []string
}

type step struct {
	name, command, shell, dir, cond, timeout string
	env                                      []workflow.Env
	goOn                                     bool
}

// yaml is d as a file.
func (d *draft) yaml() []byte {
	w := &writer{}
	for _, c := range d.comment {
		w.line(0, "# "+c)
	}
	if d.name != "" {
		w.line(0, "name: "+scalar(d.name))
	}
	d.conditions(w)
	w.flow("needs", d.needs)
	if d.cond != "" {
		w.line(0, "if: "+scalar(d.cond))
	}
	if len(d.matrix)+len(d.include) > 0 {
		w.line(0, "matrix:")
		for _, a := range d.matrix {
			w.line(2, scalar(a.key)+": "+flow(a.values))
		}
		w.cells("include", d.include)
		w.cells("exclude", d.exclude)
	}
	if d.group != "" {
		w.line(0, "concurrency:")
		w.line(2, "group: "+scalar(d.group))
		if d.cancel {
			w.line(2, "cancel: true")
		}
	}
	if len(d.inputs) > 0 {
		w.line(0, "inputs:")
		for _, in := range d.inputs {
			s := "type: " + in.kind
			if len(in.options) > 0 {
				s += ", options: " + flow(in.options)
			}
			if in.def != "" {
				s += ", default: " + scalar(in.def)
			}
			if in.required {
				s += ", required: true"
			}
			if in.about != "" {
				s += ", description: " + scalar(in.about)
			}
			w.line(2, scalar(in.key)+": {"+s+"}")
		}
	}
	w.flow("runs_on", d.runsOn)
	if d.image != "" {
		w.line(0, "image: "+scalar(d.image))
	}
	if len(d.services) > 0 {
		w.line(0, "services:")
		for _, s := range d.services {
			w.line(2, scalar(s.name)+":")
			w.line(4, "image: "+scalar(s.image))
			w.env(4, s.env)
		}
	}
	if d.depth != "" {
		w.line(0, "clone: {depth: "+d.depth+"}")
	}
	w.env(0, d.env)
	w.flow("secrets", d.secrets)
	if len(d.arts) > 0 {
		w.line(0, "artifacts:")
		for _, a := range d.arts {
			w.line(2, "- {name: "+scalar(a.name)+", paths: "+flow(a.paths)+"}")
		}
	}
	if d.timeout != "" {
		w.line(0, "timeout: "+d.timeout)
	}
	w.line(0, "steps:")
	for _, s := range d.steps {
		s.write(w)
	}
	return []byte(w.b.String())
}

func (d *draft) conditions(w *writer) {
	if len(d.when) == 0 {
		return
	}
	w.line(0, "when:")
	for _, c := range d.when {
		w.line(2, "- event: "+c.event)
		for _, l := range []struct {
			key  string
			list []string
		}{{"branch", c.branch}, {"tag", c.tag}, {"types", c.types}, {"paths", c.paths}} {
			if len(l.list) > 0 {
				w.line(4, l.key+": "+flow(l.list))
			}
		}
		if len(c.cron) > 0 {
			w.line(4, "schedule:")
			for _, t := range c.cron {
				w.line(6, "- cron: "+scalar(t))
			}
		}
	}
}

func (s step) write(w *writer) {
	first := "- "
	put := func(text string) {
		w.line(2, first+text)
		first = "  "
	}
	if s.name != "" {
		put("name: " + scalar(s.name))
	}
	if s.cond != "" {
		put("if: " + scalar(s.cond))
	}
	if strings.Contains(s.command, "\n") {
		put("command: |")
		for _, l := range strings.Split(strings.TrimRight(s.command, "\n"), "\n") {
			if strings.TrimSpace(l) == "" {
				w.line(0, "")
			} else {
				w.line(6, l)
			}
		}
	} else {
		put("command: " + scalar(s.command))
	}
	w.env(4, s.env)
	if s.shell != "" {
		put("shell: " + scalar(s.shell))
	}
	if s.dir != "" {
		put("working_directory: " + scalar(s.dir))
	}
	if s.goOn {
		put("continue_on_error: true")
	}
	if s.timeout != "" {
		put("timeout: " + s.timeout)
	}
}

type writer struct{ b strings.Builder }

func (w *writer) line(indent int, text string) {
	w.b.WriteString(strings.Repeat(" ", indent) + text + "\n")
}

func (w *writer) flow(key string, list []string) {
	if len(list) > 0 {
		w.line(0, key+": "+flow(list))
	}
}

func (w *writer) env(indent int, env []workflow.Env) {
	if len(env) == 0 {
		return
	}
	w.line(indent, "environment:")
	for _, e := range env {
		w.line(indent+2, e.Key+": "+scalar(e.Value))
	}
}

func (w *writer) cells(key string, cells [][]workflow.Env) {
	if len(cells) == 0 {
		return
	}
	w.line(2, key+":")
	for _, c := range cells {
		var kv []string
		for _, e := range c {
			kv = append(kv, scalar(e.Key)+": "+scalar(e.Value))
		}
		w.line(4, "- {"+strings.Join(kv, ", ")+"}")
	}
}

func flow(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = scalar(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// plain is text that YAML takes as it is, in a list too.
var plain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_./][A-Za-z0-9_./ @=+()-]*$`) })

// scalar is s as YAML, in quotes where it would mean something else.
func scalar(s string) string {
	if plain().MatchString(s) && !strings.HasSuffix(s, " ") && !strings.Contains(s, " #") {
		switch strings.ToLower(s) {
		case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
			return `"` + s + `"`
		}
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(s) + `"`
}
