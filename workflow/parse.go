package workflow

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Parse reads one workflow file. file is the path to name in diagnostics and in the Spec. The Spec is nil
// when any diagnostic is an error; otherwise the diagnostics are warnings. They come in the order of the
// file and tell all problems that can be told before the first is mended.
func Parse(file string, src []byte, lim Limits) (*Spec, []Diagnostic) {
	lim = lim.filled()
	r := &report{file: clean(file, 300), limit: lim.Diagnostics}
	root := readTree(r, src, lim)
	if root == nil {
		return nil, r.done()
	}
	if dialect(r, root) {
		return nil, r.done()
	}
	d := decoder{report: r, lim: lim}
	s := d.spec(root)
	if r.failed() {
		return nil, r.done()
	}
	s.File = file
	if s.Name == "" {
		s.Name = baseName(file)
	}
	return s, r.done()
}

// baseName is the workflow's name: the file name without its ending.
func baseName(file string) string {
	base := path.Base(file)
	for _, ending := range []string{".yml", ".yaml"} {
		if s, ok := strings.CutSuffix(base, ending); ok {
			return s
		}
	}
	return base
}

// later holds the workflow keys of the language that this version does not offer, with what to do instead.
var later = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"needs":       "put the steps of both into one workflow, in order",
		"if":          "remove it; when: decides what starts a workflow",
		"matrix":      "write one file for each combination",
		"concurrency": "remove it; a newer push replaces an older one that waits",
		"inputs":      "remove it; a manual run hands every input over as TANGLED_INPUT_<NAME>",
		"deploys_to":  "remove it",
		"approval":    "remove it",
		"services":    "start what you need in a step, in the background",
		"secrets":     "remove it, and know that a trusted run gets every secret of its repository",
		"artifacts":   "upload the files in a step",
		"reports":     "print the report in a step",
		"retry":       "remove it; a person can start the workflow again",
	}
})

// laterStep is later for the keys of a step.
var laterStep = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"secrets":           "remove it, and know that every step gets the secrets of the run",
		"if":                "decide inside the command, with the shell's if",
		"continue_on_error": "end the command with || true",
		"shell":             `call the shell in the command, such as sh -c '...'`,
		"working_directory": "start the command with cd <folder> && ...",
	}
})

func (d *decoder) spec(root *node) *Spec {
	s := &Spec{Engine: Sandbox, Clone: Clone{Depth: 1, Submodules: true, Tags: true}}
	var o origins
	fields := map[string]field{
		"name":        func(k string, at pos, v *node) { s.Name = d.word(k, at, v, nameLimit) },
		"when":        func(k string, at pos, v *node) { s.When = d.when(k, at, v) },
		"runs_on":     func(k string, at pos, v *node) { s.RunsOn = d.labels(k, at, v) },
		"engine":      func(k string, at pos, v *node) { s.Engine, o.engine = d.engine(k, at, v), v.at },
		"image":       func(k string, at pos, v *node) { s.Image, o.image = d.word(k, at, v, imageLimit), v.at },
		"clone":       func(_ string, _ pos, v *node) { d.clone(v, &s.Clone) },
		"environment": func(k string, at pos, v *node) { s.Environment = d.environment(k, at, v) },
		"audience":    func(k string, at pos, v *node) { s.Audience = d.audience(k, at, v) },
		"cache":       func(k string, at pos, v *node) { s.Cache = d.caches(k, at, v) },
		"timeout":     func(k string, at pos, v *node) { d.duration(k, at, v, &s.Timeout) },
		"steps":       func(k string, at pos, v *node) { s.Steps = d.steps(k, at, v) },
		"dependencies": func(k string, at pos, v *node) {
			s.Dependencies, o.dependencies = d.dependencies(k, at, v), v
		},
	}
	offered := maps.Clone(later())
	for _, k := range microvmOnly() {
		fields[k] = func(k string, at pos, v *node) { o.microvm = append(o.microvm, pair{k, at, v}) }
		delete(offered, k)
	}
	d.object(root, "the workflow", workflowKeys(), fields, offered)
	d.suits(s, o)
	return s
}

// origins remembers where the file says what only some engines have.
type origins struct {
	engine, image pos
	dependencies  *node
	microvm       []pair
}

// microvmOnly are the keys of that engine alone; caches is the earlier name of substituters.
func microvmOnly() []string {
	return []string{"registry", "substituters", "caches", "services", "virtualisation"}
}

// engines lists what a file may name.
func engines() []string { return []string{Sandbox, Nixery, Microvm, Dummy} }

func (d *decoder) engine(key string, at pos, v *node) string {
	s := d.word(key, at, v, nameLimit)
	if s == "" {
		return Sandbox
	}
	if !slices.Contains(engines(), s) {
		fix := "write one of " + list(engines()) + ", or remove the line for sandbox"
		if w := nearest(s, engines()); w != "" {
			fix = "engine: " + w
		}
		d.err(v.at, codeEngine, fix, "unknown engine %s (known: %s)%s", quoted(s), list(engines()), didYouMean(s, engines()))
		return ""
	}
	return s
}

// suits checks what depends on the engine.
func (d *decoder) suits(s *Spec, o origins) {
	if s.Engine == "" {
		return // reported; what would suit is unknown
	}
	if o.image != (pos{}) && s.Image != "" {
		switch {
		case s.Engine == Nixery:
			d.err(o.image, codeValue, "remove image:, or use another engine", "engine nixery makes its image from dependencies and takes none")
		case s.Engine == Sandbox && s.Image != HostImage:
			d.err(o.image, codeOffer, "image: host, or remove the line",
				"images other than %s are not offered by this version for engine sandbox, this is %s", quoted(HostImage), quoted(s.Image))
		}
	}
	if v := o.dependencies; v != nil {
		switch {
		case s.Engine == Sandbox && v.kind != null:
			d.err(v.at, codeOffer, "remove it and use what the machine has, or name the engine that the packages are for",
				`"dependencies" is not offered by this version for engine sandbox`)
		case s.Engine == Nixery && v.kind != mapping && v.kind != null:
			d.err(v.at, codeType, "dependencies: {nixpkgs: [go, nodejs]}", `"dependencies" of engine nixery must be a mapping of registries to packages, this is %s`, v)
		case s.Engine == Microvm && v.kind == mapping:
			d.err(v.at, codeType, "dependencies: [go, nodejs]", `"dependencies" of engine microvm must be a list of packages, this is a mapping`)
		}
	}
	d.microvm(s, o.microvm)
}

// label is what a runner's label may look like.
var label = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,63}$`)

func (d *decoder) labels(key string, at pos, v *node) []string {
	var out []string
	d.texts(key, at, v, labelsLimit, func(n *node, s string) {
		switch {
		case !label.MatchString(s):
			d.err(n.at, codeValue, "use letters, digits and . _ : / = + - only, at most 64", "%s is not a label", quoted(s))
		case !slices.Contains(out, s):
			out = append(out, s)
		}
	})
	return out
}

func (d *decoder) audience(key string, at pos, v *node) string {
	s := d.word(key, at, v, audienceLimit)
	if strings.HasPrefix(strings.ToLower(s), "did:") {
		// Such a token could be replayed to a service of the network as if a person had signed it.
		d.err(v.at, codeValue, "write the audience that the receiver documents, such as sts.amazonaws.com",
			"an audience must not be a DID, this is %s", quoted(s))
		return ""
	}
	return s
}

// dialect reports a file in the language of another system, which would otherwise be a wall of unknown keys.
func dialect(r *report, root *node) bool {
	var found []string
	var at pos
	for _, p := range root.pairs {
		if p.key == "on" || p.key == "jobs" {
			found = append(found, fmt.Sprintf("%q", p.key+":"))
			if at == (pos{}) {
				at = p.at
			}
		}
		if p.key == "steps" {
			return false
		}
		if p.key == "jobs" && p.value.kind == mapping {
			at = p.at
		}
	}
	jobs := slices.Contains(found, `"jobs:"`)
	if !jobs {
		return false
	}
	r.err(at, codeDialect, "write when: for on:, and one file with steps: for each job; run: becomes command:",
		"this looks like a GitHub Actions workflow (found %s)", strings.Join(found, ", "))
	return true
}
