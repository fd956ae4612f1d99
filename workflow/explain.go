package workflow

import (
	"slices"
	"strings"
	"unicode"

	"spindle/pipeline"
)

// Explanation teaches what one code of a diagnostic is about.
type Explanation struct {
	Code string
	// Meaning is the code in a few words, as in the table of docs/workflow.md.
	Meaning string
	// Why says in a sentence or two why such a file is refused, or what it is warned of.
	Why string
	// Wrong yields a diagnostic of this code and of no other; Right is what to write instead.
	Wrong, Right Example
}

// Example is a small workflow file.
type Example struct {
	// File is its name in Dir; empty means test.yml.
	File   string
	Source string
	// Only is what a manual run asks for by name; empty means everything.
	Only string
	// Inputs are what a manual run sends.
	Inputs []pipeline.Input
	// Bare says that the server carries out nothing but steps.
	Bare bool
}

// Input is what the example looks like to Compile: one file of one commit, started by hand.
func (e Example) Input() Input {
	in := Input{Files: []File{{Path: Dir + e.Name(), Data: []byte(e.Source)}}}
	in.Trigger.Kind = pipeline.Manual
	in.Trigger.Inputs = e.Inputs
	if e.Bare {
		in.Capabilities = &Capabilities{}
	}
	if e.Only != "" {
		in.Trigger.Only = []string{e.Only}
	}
	return in
}

// Name is the name of the example's file.
func (e Example) Name() string {
	if e.File == "" {
		return "test.yml"
	}
	return e.File
}

// String is the source with control characters shown as dots, as in the excerpts of diagnostics.
func (e Example) String() string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return '·'
		}
		return r
	}, e.Source)
}

// Explain returns the explanation of code. Case does not count, and the beginning E-WF- or W-WF- may be left
// out. Where there is no such code, meant is the one that was probably meant, or "".
func Explain(code string) (e Explanation, meant string, ok bool) {
	want := strings.ToUpper(strings.TrimSpace(code))
	all := Explanations()
	var codes []string
	for _, begin := range []string{"", "E-WF-", "W-WF-"} {
		for _, e := range all {
			if e.Code == begin+want {
				return e, "", true
			}
			codes = append(codes, strings.TrimPrefix(e.Code, begin))
		}
	}
	meant = nearest(want, codes)
	if i := slices.IndexFunc(all, func(e Explanation) bool { return strings.HasSuffix(e.Code, meant) }); meant != "" && i >= 0 {
		meant = all[i].Code
	}
	return Explanation{}, meant, false
}

// command is the end of most examples.
const command = "steps:\n  - command: make test\n"

// text makes an example of source alone.
func text(source string) Example { return Example{Source: source} }

// Explanations returns one for every code, in the order of docs/workflow.md: first what has to do with the
// text of the file, then with its meaning, then the warnings.
func Explanations() []Explanation {
	return slices.Concat(explainText(), explainMeaning(), explainWarnings())
}

// explainText holds the codes of files that are no readable YAML, or use what the language leaves out of it.
func explainText() []Explanation {
	return []Explanation{
		{
			codeYAML, "not YAML",
			"The file cannot be read at all, so nothing in it can be understood. Nearly always a line is indented differently " +
				"from its siblings, a quote or a bracket is not closed, or a value holds a colon and needs quotes.",
			text("steps:\n  - name: unit\n     command: make test\n"),
			text("steps:\n  - name: unit\n    command: make test\n"),
		},
		{
			codeEncoding, "not UTF-8, or a control character",
			"YAML is text in UTF-8 without control characters other than tabs and line ends. An invisible character in a " +
				"command would run as something else than what people read.",
			text("steps:\n  - command: make\x07 test\n"), text(command),
		},
		{
			codeTab, "a tab in the indentation",
			"YAML allows spaces alone for indentation, since nobody can say how wide a tab is. Tabs inside a command are fine.",
			text("steps:\n\t- command: make test\n"), text(command),
		},
		{
			codeEmpty, "nothing in the file",
			"A workflow has at least one step. A file that holds nothing, or comments alone, is more likely a mistake than a wish.",
			text("# to be written\n"), text(command),
		},
		{
			codeDocuments, "more than one document",
			"One file is one workflow, named after the file. A line --- starts a second document, which would have no name.",
			text(command + "---\n" + command), text(command),
		},
		{
			codeAnchor, "an alias without an anchor, or a pattern that starts with `*` without quotes",
			"An alias (*name) stands for the value that an anchor (&name) before it has named; it must not stand for what it is a part of. " +
				"A pattern that starts with a star reads as an alias, so it needs quotes.",
			text("when:\n  - event: push\n    branch: *\n" + command),
			text("when:\n  - event: push\n    branch: \"*\"\n" + command),
		},
		{
			codeMerge, "a merge key without a mapping",
			"The key << copies keys from one mapping, or from each of a list of mappings. Nothing else can be merged.",
			text("steps:\n  - command: make test\n    environment: {<<: A}\n"),
			text("steps:\n  - command: make build\n    environment: &env {A: b}\n  - command: make test\n    environment: {<<: *env, C: d}\n"),
		},
		{
			codeTag, "a tag, or a pattern that starts with `!` without quotes",
			"A tag (!name) asks the reader to make something other than text of a value; nothing here does. A pattern that " +
				"excludes starts with ! as well, so it needs quotes.",
			text("when:\n  - event: push\n    branch: [\"**\", !wip]\n" + command),
			text("when:\n  - event: push\n    branch: [\"**\", \"!wip\"]\n" + command),
		},
		{
			codeTwice, "the same key, cache or workflow name twice",
			"Most readers of YAML silently take the last of two equal keys, so that half of what was written has no effect.",
			text("environment: {A: b}\nenvironment: {C: d}\n" + command),
			text("environment: {A: b, C: d}\n" + command),
		},
		{
			codeLimit, "larger than allowed",
			"Files come from anywhere and are read before anybody is asked, so everything in them is bounded. The message names " +
				"the bound; docs/workflow.md lists all of them.",
			text("name: " + strings.Repeat("test ", 25) + "\n" + command), text("name: test\n" + command),
		},
	}
}
