package workflow

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Parse reads one workflow file. file is the path to name in diagnostics and in the Spec. The Spec is nil
// when any diagnostic is an error; otherwise the diagnostics are warnings. They come in the order of the
// file and tell all problems that can be told before the first is mended.
func Parse(file string, src []byte, lim Limits) (*Spec, []Diagnostic) {
	p := readFile(file, src, lim.filled())
	return p.spec, p.diagnostics
}

// parsed is what comes of one file: spec is nil when a diagnostic is an error.
type parsed struct {
	spec        *Spec
	diagnostics []Diagnostic
	uses        []use
	needs       []pos // of each entry of spec.Needs
	engine      pos   // zero when the file names none
	matrix      pos
}

// use is a key that not every server carries out.
type use struct {
	feature Feature
	at      pos
}

func readFile(file string, src []byte, lim Limits) parsed {
	r := &report{file: clean(file, 300), limit: lim.Diagnostics, src: src}
	root := readTree(r, src, lim)
	if root == nil || dialect(r, root) {
		r.mendTabs(lim)
		return parsed{diagnostics: r.done()}
	}
	d := decoder{report: r, lim: lim}
	s := d.spec(root, baseName(file))
	if r.failed() {
		return parsed{diagnostics: r.done()}
	}
	s.File = file
	if s.Name == "" {
		s.Name = baseName(file)
	}
	return parsed{spec: s, diagnostics: r.done(), uses: d.uses, needs: d.needsAt, engine: d.engineAt, matrix: d.matrixAt}
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

func (d *decoder) spec(root *node, name string) *Spec {
	s := &Spec{Engine: Sandbox, Clone: Clone{Depth: 1, Submodules: true, Tags: true}}
	var o origins
	d.object(root, "the workflow", workflowKeys(), func(p pair) { d.key(s, &o, p, name) })
	d.suits(s, o)
	d.expressions(s)
	return s
}

// key reads one key of the workflow called name.
func (d *decoder) key(s *Spec, o *origins, p pair, name string) {
	k, at, v := p.key, p.at, p.value
	switch k {
	case "name":
		s.Name = d.word(k, at, v, nameLimit)
	case "when":
		s.When = d.when(k, at, v)
	case "needs":
		s.Needs = d.needs(p, name)
	case "if":
		s.If = d.expression(p, FeatureIf)
	case "matrix":
		s.Matrix = d.matrix(p)
	case "concurrency":
		s.Concurrency = d.concurrency(p)
	case "inputs":
		s.Inputs = d.inputs(p)
	case "deploys_to":
		s.DeploysTo = d.deploysTo(p)
	case "approval":
		s.Approval = d.approval(p)
	case "runs_on":
		s.RunsOn = d.labels(k, at, v)
	case "engine":
		s.Engine, d.engineAt = d.engine(k, at, v), v.at
	case "image":
		s.Image, o.image = d.word(k, at, v, imageLimit), p
	case "dependencies":
		s.Dependencies, o.dependencies = d.dependencies(k, at, v), p
	case "services":
		o.services = p
	case "network":
		s.Network = d.network(p)
	case "clone":
		d.clone(v, &s.Clone)
	case "environment":
		s.Environment = d.environment(k, at, v)
	case "secrets":
		s.Secrets = d.secrets(p)
	case "audience":
		s.Audience = d.audience(k, at, v)
	case "cache":
		d.use(FeatureCache, at)
		s.Cache = d.caches(k, at, v)
	case "artifacts":
		s.Artifacts = d.artifacts(p)
	case "reports":
		s.Reports = d.reports(p)
	case "timeout":
		d.duration(k, at, v, &s.Timeout)
	case "retry":
		s.Retry = d.retry(p)
	case "steps":
		s.Steps = d.steps(k, at, v)
	default:
		o.microvm = append(o.microvm, p)
	}
}

// use notes that the file asks for f.
func (d *decoder) use(f Feature, at pos) { d.uses = append(d.uses, use{f, at}) }

// origins remembers what the file says that depends on the engine.
type origins struct {
	image, dependencies, services pair
	microvm                       []pair
}

// microvmOnly are the keys of that engine alone; caches is the earlier name of substituters.
func microvmOnly() []string {
	return []string{"registry", "substituters", "caches", "virtualisation"}
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
		w, alone := nearestAlone(s, engines())
		if w != "" {
			fix = "engine: " + w
		}
		d.err(v.at, codeEngine, fix, "unknown engine %s (known: %s)%s", quoted(s), list(engines()), didYouMean(s, engines()))
		if alone {
			d.mend(v.at, s, w)
		}
		return ""
	}
	return s
}

// imageReference is what the name of an OCI image is made of.
var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$`)

// suits checks what depends on the engine.
func (d *decoder) suits(s *Spec, o origins) {
	if s.Engine == "" {
		return // reported; what would suit is unknown
	}
	if o.image.value != nil && s.Image != "" {
		switch v := o.image.value; {
		case s.Engine == Nixery:
			d.err(v.at, codeValue, "remove image:, or use another engine", "engine nixery makes its image from dependencies and takes none")
		case s.Engine == Sandbox && !imageReference.MatchString(s.Image):
			d.err(v.at, codeValue, "write a name such as docker.io/library/golang:1.26, or host", "%s is not the name of an image", quoted(s.Image))
		case s.Image != HostImage || s.Engine != Sandbox:
			d.use(FeatureImage, o.image.at)
		}
	}
	if v := o.dependencies.value; v != nil {
		d.use(FeatureDependencies, o.dependencies.at)
		switch {
		case s.Engine == Nixery && v.kind != mapping && v.kind != null:
			d.err(v.at, codeType, "dependencies: {nixpkgs: [go, nodejs]}", `"dependencies" of engine nixery must be a mapping of registries to packages, this is %s`, v)
		case s.Engine == Microvm && v.kind == mapping:
			d.err(v.at, codeType, "dependencies: [go, nodejs]", `"dependencies" of engine microvm must be a list of packages, this is a mapping`)
		}
	}
	if p := o.services; p.value != nil {
		d.use(FeatureServices, p.at)
		if s.Engine == Microvm {
			s.Microvm = &MicrovmSpec{Services: d.nix(p)}
		} else {
			s.Services = d.services(p)
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
	r.err(at, codeDialect, "let spindle init --from github --print "+typed(r.file)+" translate it, or write when: for on:, one file with steps: for each job, and command: for run:",
		"this looks like a GitHub Actions workflow (found %s)", strings.Join(found, ", "))
	return true
}
