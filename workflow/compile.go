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
	// All plans every file whatever its conditions, and asks for no inputs, as linters want it.
	All bool
	// Partial says that Files are not all files of the commit, so that a need that is none of them may be there.
	Partial bool
	// Engines are those offered here. None means that it is not known, and every engine is taken.
	Engines []string
	// Capabilities are what is carried out here. Nil means that it is not known, and everything is taken without a note.
	Capabilities *Capabilities
	// Earlier has results of the run that this one repeats, by the name of the file without its ending. A need that
	// is here is not started because somebody needs it, and counts with this result where it is not started at all.
	Earlier map[string]Need
	Limits  Limits
}

// Planned is one workflow of a plan: a file, or a cell of its matrix. Spec is nil when the file is invalid; Diagnostics
// then say why. The diagnostics of a file come with its first cell.
type Planned struct {
	Name string // unique in the plan: Workflow, or with a cell such as test[go=1.26]
	// Workflow is the file name without its ending; needs name it.
	Workflow    string
	Path        string
	Digest      string // SHA-256 of Source, in hex
	Spec        *Spec
	Diagnostics []Diagnostic
	// Skip, if not empty, says in one sentence why the workflow is skipped, which is known without running anything.
	Skip   string
	Source []byte
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
	// InputErrors are what is wrong with the inputs of a manual run. Each has an error in Diagnostics, and nothing of
	// the plan should run.
	InputErrors []*InputError
}

// Compile decides what in.Trigger starts. Workflows come sorted by name, the cells of a matrix in its order. An invalid
// file is planned whatever the trigger, since nobody can know what it would have wanted. A manual run asks no condition,
// and Trigger.Only leaves out what it does not name and nothing that it names needs.
//
// A need whose file is valid and not started by the trigger counts as skipped, so that what needs it is skipped as
// well, unless its `if` says otherwise.
func Compile(in Input) Plan {
	c := compiler{in: in, lim: in.Limits.filled(), work: newWork(), entries: map[string]*source{}}
	groups := c.group()
	for _, g := range groups {
		c.entries[g.name] = &source{group: g}
	}
	c.start(groups)
	c.link(groups)
	for _, g := range groups {
		c.settle(c.entries[g.name])
	}
	c.inputs()
	return c.plan
}

// compiler holds one Compile.
type compiler struct {
	in      Input
	lim     Limits
	work    *work // shared by all files
	entries map[string]*source
	plan    Plan
}

// source is one file on its way into the plan.
type source struct {
	group
	read    bool
	started bool
	parsed
	planned Planned
	why     string // why it is not started
	cells   []string
	settled Need // what it counts as for those that need it, once it is settled
	skip    string
	done    bool
}

// group is the files that share a name: one, unless something is wrong.
type group struct {
	name  string
	files []File
	like  string // another name that differs in case only
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
		out = append(out, group{name: name, files: files})
	}
	slices.SortFunc(out, func(a, b group) int { return strings.Compare(a.name, b.name) })
	first := map[string]int{}
	for i, g := range out {
		// On some disks, and in some readers' eyes, two such names are one.
		if j, twice := first[strings.ToLower(g.name)]; twice {
			out[i].like, out[j].like = out[j].name, g.name
			continue
		}
		first[strings.ToLower(g.name)] = i
	}
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

// load reads the file of e, once.
func (c *compiler) load(e *source) {
	if e.read {
		return
	}
	e.read = true
	f := e.files[0]
	sum := sha256.Sum256(f.Data)
	e.planned = Planned{Name: e.name, Workflow: e.name, Path: f.Path, Digest: hex.EncodeToString(sum[:]), Source: f.Data}
	p := &e.planned
	e.parsed = readFile(f.Path, f.Data, c.lim)
	p.Spec, p.Diagnostics = e.spec, e.diagnostics
	if len(f.Data) > c.lim.FileBytes {
		p.Source = nil // nothing of it is shown, and it is too large to keep
	}
	switch {
	case len(e.files) > 1:
		p.refuse(codeTwice, "rename one of them", "%s and %s are both named %s", quoted(f.Path), quoted(e.files[1].Path), quoted(e.name))
	case e.like != "":
		p.refuse(codeTwice, "rename one of them", "%s differs from the workflow %s in upper and lower case only", quoted(f.Path), quoted(e.like))
	case !fileName.MatchString(e.name):
		p.refuse(codeFile, "use letters, digits and . _ - only, at most 64", "the file name %s cannot name a workflow", quoted(e.name))
		// No file can have a name that starts so, and two files cannot share this one.
		sum := sha256.Sum256([]byte(e.name))
		p.Name = "~file-" + hex.EncodeToString(sum[:6])
		p.Workflow = p.Name
	}
}

// start decides which files the trigger starts.
func (c *compiler) start(groups []group) {
	only := c.only(groups)
	for _, g := range groups {
		e := c.entries[g.name]
		if only != nil && !only[g.name] {
			e.why = "it was not asked for"
			continue
		}
		c.load(e)
		e.started = true
		if s := e.planned.Spec; s != nil && !c.in.All {
			if ok, why := s.match(c.in.Trigger, c.in.DefaultBranch, c.in.Changed, c.work); !ok {
				e.started, e.why = false, why
				c.plan.NotMatched = append(c.plan.NotMatched, NotMatched{g.name, why})
			}
		}
	}
	if only == nil {
		return
	}
	// What was asked for brings what it needs.
	for again := true; again; {
		again = false
		for _, g := range groups {
			e := c.entries[g.name]
			if !e.started || e.planned.Spec == nil {
				continue
			}
			for _, n := range e.planned.Spec.Needs {
				x := c.entries[n]
				if _, earlier := c.in.Earlier[n]; x == nil || x.started || earlier {
					continue
				}
				c.load(x)
				x.started, again = true, true
			}
		}
	}
}

// refuse makes p invalid.
func (p *Planned) refuse(code, fix, format string, args ...any) {
	p.refuseAt(pos{}, code, fix, format, args...)
}

func (p *Planned) refuseAt(at pos, code, fix, format string, args ...any) {
	p.Spec = nil
	p.Diagnostics = append(p.Diagnostics, Diagnostic{
		File: clean(p.Path, 300), Line: at.line, Column: at.column, Severity: Error, Code: code, Message: fmt.Sprintf(format, args...), Fix: fix,
	})
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
