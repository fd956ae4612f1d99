package adopt

import "slices"

// Project is a kind of project that a first workflow is known for.
type Project string

// The kinds, in the order in which they are looked for.
const (
	Go     Project = "go"
	Node   Project = "node"
	Rust   Project = "rust"
	Python Project = "python"
	Nix    Project = "nix"
	Shell  Project = "shell"
)

// Projects lists the kinds.
func Projects() []Project { return []Project{Go, Node, Rust, Python, Nix, Shell} }

// Detect is the kind of a project whose top folder has the files names, and what says so.
func Detect(names []string) (p Project, because string) {
	for _, k := range []struct {
		p     Project
		files []string
	}{
		{Go, []string{"go.mod"}},
		{Node, []string{"package.json"}},
		{Rust, []string{"Cargo.toml"}},
		{Python, []string{"pyproject.toml", "setup.py", "requirements.txt", "setup.cfg"}},
		{Nix, []string{"flake.nix", "default.nix"}},
	} {
		for _, f := range k.files {
			if slices.Contains(names, f) {
				return k.p, f
			}
		}
	}
	return Shell, ""
}

// Facts are what a template asks of a project.
type Facts struct {
	// NodeTest and NodeBuild say that package.json has these scripts.
	NodeTest, NodeBuild bool
	// Scripts are shell scripts at the top whose names say that they are tests.
	Scripts []string
	// Makefile says that there is one with a target test.
	Makefile bool
}

// Template is a small first workflow.
func Template(p Project, f Facts) File {
	d := &draft{
		comment: []string{
			"Runs for every push to a branch and for every pull request.",
			"`spindle run` runs it here, `spindle lint` checks it, docs/workflow.md has the language.",
		},
		when: []condition{{event: "[push, pull_request]", branch: []string{"**"}}},
	}
	switch p {
	case Go:
		d.steps = []step{{name: "vet", command: "go vet ./..."}, {name: "test", command: "go test ./..."}}
	case Node:
		d.steps = nodeSteps(f)
	case Rust:
		d.steps = []step{{name: "build", command: "cargo build --locked"}, {name: "test", command: "cargo test --locked"}}
	case Python:
		d.steps = []step{
			{name: "compile", command: "python3 -m compileall -q ."},
			{name: "test", command: "if python3 -c 'import pytest' 2>/dev/null; then\n  python3 -m pytest\nelse\n  python3 -m unittest discover\nfi"},
		}
	case Nix:
		d.steps = []step{{name: "check", command: "nix flake check"}}
	default:
		d.steps = shellSteps(f)
	}
	return File{Name: "test.yml", Data: d.yaml()}
}

func nodeSteps(f Facts) []step {
	steps := []step{{
		name:    "install",
		command: "if [ -f package-lock.json ] && ! [ -d node_modules ]; then\n  npm ci --no-audit --no-fund\nfi",
	}}
	if f.NodeBuild {
		steps = append(steps, step{name: "build", command: "npm run build"})
	}
	if f.NodeTest {
		return append(steps, step{name: "test", command: "npm test"})
	}
	return append(steps, step{name: "check", command: "git ls-files -z -- '*.js' '*.mjs' '*.cjs' | xargs -0 -r -n 1 node --check"})
}

func shellSteps(f Facts) []step {
	steps := []step{{name: "syntax", command: "git ls-files -z -- '*.sh' | xargs -0 -r -n 1 sh -n"}}
	if f.Makefile {
		return append(steps, step{name: "test", command: "make test"})
	}
	for _, s := range f.Scripts {
		steps = append(steps, step{name: s, command: "sh ./" + s})
	}
	return steps
}
