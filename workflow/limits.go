package workflow

import "time"

// Limits bound what one set of workflow files may ask for. A zero field means the default.
type Limits struct {
	// Files is how many workflow files one commit may have.
	Files int
	// FileBytes is the size of one file.
	FileBytes int
	// Depth is how deep collections may nest, and Nodes how many values one file may hold: keys, texts, lists and mappings.
	Depth, Nodes int
	// Steps is how many steps one workflow may have.
	Steps int
	// Conditions is how many entries `when` may have.
	Conditions int
	// Patterns is how many globs one file may have, and PatternBytes the length of one.
	Patterns, PatternBytes int
	// Environment is how many variables one environment may have, and ValueBytes the length of one value or
	// command. The kernel takes no argument or variable above 128 KiB.
	Environment, ValueBytes int
	// List is how long every other list may be: labels, packages, caches and their paths.
	List int
	// Cells is how many cells a matrix may have, and Workflows how many workflows, cells counted, one trigger may start.
	Cells, Workflows int
	// Aliases is how many values the aliases of a file may stand for, all together.
	Aliases int
	// Timeout is the longest time that a file may ask for.
	Timeout time.Duration
	// Diagnostics is how many problems of one file are told; the rest are counted.
	Diagnostics int
}

// DefaultLimits are the limits of a server that sets none.
func DefaultLimits() Limits {
	return Limits{
		Files: 64, FileBytes: 256 << 10, Depth: 64, Nodes: 5_000, Steps: 100, Conditions: 100,
		Patterns: 100, PatternBytes: 256, Environment: 500, ValueBytes: 120 << 10, List: 500,
		Cells: 256, Workflows: 1000, Aliases: 20_000,
		Timeout: 24 * time.Hour, Diagnostics: 50,
	}
}

// filled is l with the default in every field that is zero or below.
func (l Limits) filled() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ have, want *int }{
		{&l.Files, &d.Files},
		{&l.FileBytes, &d.FileBytes},
		{&l.Depth, &d.Depth},
		{&l.Nodes, &d.Nodes},
		{&l.Steps, &d.Steps},
		{&l.Conditions, &d.Conditions},
		{&l.Patterns, &d.Patterns},
		{&l.PatternBytes, &d.PatternBytes},
		{&l.Environment, &d.Environment},
		{&l.ValueBytes, &d.ValueBytes},
		{&l.List, &d.List},
		{&l.Cells, &d.Cells},
		{&l.Workflows, &d.Workflows},
		{&l.Aliases, &d.Aliases},
		{&l.Diagnostics, &d.Diagnostics},
	} {
		if *f.have <= 0 {
			*f.have = *f.want
		}
	}
	if l.Timeout <= 0 {
		l.Timeout = d.Timeout
	}
	return l
}
