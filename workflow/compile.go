package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"spindle/pipeline"
)

// Dir is where workflow files live in a repository.
const Dir = ".tangled/workflows/"

// File is one file of Dir at the commit that is to run.
type File struct {
	Path string
	Data []byte
	// NotTaken, if not empty, says why Data was not read: "it is a symbolic link". The plan then tells so.
	NotTaken string
}

// Input is what a Plan is made of.
type Input struct {
	Files   []File
	Trigger pipeline.Trigger
	// DefaultBranch is the repository's, or empty when unknown.
	DefaultBranch string
	Changed       Changed
	// Engines are those offered here. None means that it is not known, and every engine is taken.
	Engines []string
	Limits  Limits
}

// Planned is one workflow of a plan. Spec is nil when the file is invalid; Diagnostics then say why.
type Planned struct {
	Name        string // unique in the plan
	Path        string
	Digest      string // SHA-256 of Source, in hex
	Spec        *Spec
	Diagnostics []Diagnostic
	Source      []byte
}

// NotMatched is a valid workflow that the trigger does not start.
type NotMatched struct {
	Name string
	Why  string // one sentence
}

// Plan is what a trigger starts. Diagnostics are those of the commit as a whole.
type Plan struct {
	Workflows   []Planned
	NotMatched  []NotMatched
	Diagnostics []Diagnostic
}

// Compile decides what in.Trigger starts. Workflows come sorted by name. An invalid file is planned whatever
// the trigger, since nobody can know what it would have wanted. A manual run asks no condition, and
// Trigger.Only leaves out what it does not name.
func Compile(in Input) Plan {
	lim := in.Limits.filled()
	c := compiler{in: in, lim: lim, work: newWork()}
	groups := c.group()
	only := c.only(groups)
	for _, g := range groups {
		if only != nil && !only[g.name] {
			continue
		}
		c.add(g)
	}
	return c.plan
}

// compiler holds one Compile.
type compiler struct {
	in   Input
	lim  Limits
	work *work // shared by all files
	plan Plan
}

// group is the files that share a name: one, unless something is wrong.
type group struct {
	name  string
	files []File
}

// group sorts the workflow files by name. What is no workflow file is told and left out.
func (c *compiler) group() []group {
	byName := map[string][]File{}
	for _, f := range c.in.Files {
		rest := strings.TrimPrefix(f.Path, Dir)
		if f.NotTaken != "" {
			c.tell(Warning, f.Path, warnFile, "make it a regular file within the limits, or remove it",
				"this is not taken for a workflow: %s", clean(f.NotTaken, 200))
			continue
		}
		if !strings.HasSuffix(rest, ".yml") && !strings.HasSuffix(rest, ".yaml") || strings.Contains(rest, "/") {
			c.tell(Warning, f.Path, warnFile, "name it "+Dir+"<name>.yml if it is one",
				"this is not taken for a workflow: workflow files lie in %s and end in .yml or .yaml", Dir)
			continue
		}
		byName[baseName(rest)] = append(byName[baseName(rest)], f)
	}
	out := make([]group, 0, len(byName))
	for name, files := range byName {
		slices.SortStableFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
		out = append(out, group{name, files})
	}
	slices.SortFunc(out, func(a, b group) int { return strings.Compare(a.name, b.name) })
	slices.SortStableFunc(c.plan.Diagnostics, func(a, b Diagnostic) int { return strings.Compare(a.File, b.File) })
	if len(out) > c.lim.Files {
		c.tell(Error, Dir, codeLimit, "merge workflows, or move some to another repository",
			"there are %d workflow files, more than the %d allowed; those after %s are left out", len(out), c.lim.Files, quoted(out[c.lim.Files-1].name))
		out = out[:c.lim.Files]
	}
	return out
}

// only is the set of names asked for, or nil when all are. Names may carry the file's ending.
func (c *compiler) only(groups []group) map[string]bool {
	asked := c.in.Trigger.Only
	if len(asked) == 0 {
		return nil
	}
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	out := map[string]bool{}
	for _, a := range asked {
		switch {
		case slices.Contains(names, a):
			out[a] = true
		case slices.Contains(names, baseName(a)):
			out[baseName(a)] = true
		case len(names) == 0:
			c.tell(Error, "", codeOnly, "add a file to "+Dir, "there is no workflow %s; this commit has none", quoted(a))
		default:
			fix := "start one of " + list(names)
			if w := nearest(baseName(a), names); w != "" {
				fix = "start " + w
			}
			c.tell(Error, "", codeOnly, fix, "there is no workflow %s at this commit (can be started: %s)%s", quoted(a), clean(list(names), 300), didYouMean(baseName(a), names))
		}
	}
	return out
}

func (c *compiler) tell(s Severity, file, code, fix, format string, args ...any) {
	c.plan.Diagnostics = append(c.plan.Diagnostics, Diagnostic{
		File: clean(file, 300), Severity: s, Code: code, Message: fmt.Sprintf(format, args...), Fix: fix,
	})
}

// fileName is what can stand in addresses, tables and folder names. Git hosts are asked for no other files.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// add plans the workflow of g, or notes why it does not start.
func (c *compiler) add(g group) {
	f := g.files[0]
	sum := sha256.Sum256(f.Data)
	p := Planned{Name: g.name, Path: f.Path, Digest: hex.EncodeToString(sum[:]), Source: f.Data}
	p.Spec, p.Diagnostics = Parse(f.Path, f.Data, c.lim)
	if len(f.Data) > c.lim.FileBytes {
		p.Source = nil // nothing of it is shown, and it is too large to keep
	}
	switch {
	case len(g.files) > 1:
		p.refuse(codeTwice, "rename one of them", "%s and %s are both named %s", quoted(f.Path), quoted(g.files[1].Path), quoted(g.name))
	case !fileName.MatchString(g.name):
		p.refuse(codeFile, "use letters, digits and . _ - only, at most 64", "the file name %s cannot name a workflow", quoted(g.name))
		// No file can have a name that starts so, and two files cannot share this one.
		sum := sha256.Sum256([]byte(g.name))
		p.Name = "~file-" + hex.EncodeToString(sum[:6])
	}
	if p.Spec != nil {
		if ok, why := p.Spec.match(c.in.Trigger, c.in.DefaultBranch, c.in.Changed, c.work); !ok {
			c.plan.NotMatched = append(c.plan.NotMatched, NotMatched{g.name, why})
			return
		}
		c.offered(&p)
	}
	c.plan.Workflows = append(c.plan.Workflows, p)
}

// refuse makes p invalid.
func (p *Planned) refuse(code, fix, format string, args ...any) {
	p.Spec = nil
	p.Diagnostics = append(p.Diagnostics, Diagnostic{
		File: clean(p.Path, 300), Severity: Error, Code: code, Message: fmt.Sprintf(format, args...), Fix: fix,
	})
}

// offered makes p invalid when its engine is not one of those here.
func (c *compiler) offered(p *Planned) {
	have, want := c.in.Engines, p.Spec.Engine
	if len(have) == 0 || slices.Contains(have, want) {
		return
	}
	fix := "engine: " + have[0] + ", or use a spindle that offers " + want
	if w := nearest(want, have); w != "" {
		fix = "engine: " + w
	}
	line, column := engineAt(p.Source, c.lim)
	p.refuse(codeEngine, fix, "engine %s is not offered here (has: %s)%s", quoted(want), list(have), didYouMean(want, have))
	d := &p.Diagnostics[len(p.Diagnostics)-1]
	d.Line, d.Column = line, column
}

// engineAt is where src names its engine; zeros when it does not.
func engineAt(src []byte, lim Limits) (line, column int) {
	r := &report{limit: 1}
	root := readTree(r, src, lim)
	if root == nil {
		return 0, 0
	}
	for _, p := range root.pairs {
		if p.key == "engine" {
			return p.value.at.line, p.value.at.column
		}
	}
	return 0, 0
}

// NeedsPaths tells whether a file has a condition on paths, so that the changed files are worth finding out.
// A file that cannot be read has none.
func NeedsPaths(files []File, lim Limits) bool {
	for i, f := range files {
		if i >= lim.filled().Files {
			break
		}
		if !strings.Contains(string(f.Data), "paths") {
			continue
		}
		s, _ := Parse(f.Path, f.Data, lim)
		if s != nil && slices.ContainsFunc(s.When, func(c Condition) bool { return len(c.Paths) > 0 }) {
			return true
		}
	}
	return false
}
