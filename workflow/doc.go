// Package workflow turns the bytes of workflow files into typed Specs and tells people, by line and
// column, what stands in the way when it cannot.
//
// It owns the workflow language: its keys, defaults and limits, the codes of its diagnostics, and the
// rules that decide which file a trigger starts. One file becomes one Spec (Parse); the files of one commit
// and one trigger become a Plan (Compile).
//
// The package is pure. It reads no file but the time zones of the machine, which it keeps once read, and no clock or
// network, and starts no goroutine: the same Input gives the same Plan. Files come from a git host and are hostile; they are bounded by Limits
// before anything is built from them. Results go to the trigger room, which stores each Spec as JSON with
// the digest of its source, and to the command line, which prints the diagnostics.
//
// It refuses, always with a sentence and a fix: what is not YAML, aliases that stand for too much, custom
// tags, several documents, duplicate and unknown keys, and keys that decide what may run where the server does
// not carry them out. It fills in nothing: commands and environment values are the text that the author wrote.
//
// Invariants: Parse and Compile never panic; a Spec is returned only when no diagnostic is an error; all
// problems of a file are told at once; an invalid file is always in the Plan, so that it is visible.
package workflow
