package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"spindle/pipeline"
	"spindle/workflow"
)

// Exit codes of the commands that read workflow files.
const (
	exitInvalid  = 3
	exitNotFound = 4
)

// defaultBranch is what a trigger that names no branch is taken to be about.
const defaultBranch = "main"

func lintCommand(environ []string, stdin io.Reader, stdout io.Writer) *cli.Command {
	l := &linter{environ: environ, stdin: stdin, stdout: stdout}
	return &cli.Command{
		Name:      "lint",
		Usage:     "check workflow files and tell every problem at once",
		ArgsUsage: "[PATH...|-]",
		Description: "spindle lint                                       the files of the repository around this folder\n" +
			"spindle lint ../other .tangled/workflows/test.yml  other repositories, or files alone\n" +
			"spindle lint --explain --event push --tag v1.0     what a push of that tag starts, and why not the others\n" +
			"spindle lint - < test.yml                          a file from standard input",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: "human", Usage: "human, json, sarif, github or lsp"},
			&cli.BoolFlag{Name: "fix", Usage: "mend what can be mended safely, and show what changed"},
			&cli.BoolFlag{Name: "strict", Usage: "take warnings for errors"},
			&cli.BoolFlag{Name: "explain", Usage: "tell as well what starts which workflow, and why not the others"},
			&cli.StringFlag{Name: "event", Usage: "with --explain: push, pull_request, manual or schedule"},
			&cli.StringFlag{Name: "branch", Usage: "with --explain: the branch that is pushed, or that a pull request wants to go to"},
			&cli.StringFlag{Name: "tag", Usage: "with --explain: the tag that is pushed"},
			&cli.StringSliceFlag{Name: "changed", Usage: "with --explain: the files that changed, with commas between"},
		},
		Action: func(_ context.Context, c *cli.Command) error { return l.run(c) },
	}
}

// linter is `spindle lint`.
type linter struct {
	environ []string
	stdin   io.Reader
	stdout  io.Writer
}

// asked is what the command line asks for.
type asked struct {
	format   string
	triggers []pipeline.Trigger // to explain
	changed  workflow.Changed
}

func (l *linter) run(c *cli.Command) error {
	began := time.Now()
	a, err := readAsked(c)
	if err != nil {
		return fail(exitUsage, err)
	}
	sets, err := l.find(c.Args().Slice())
	if err != nil {
		return err
	}
	if c.Bool("fix") {
		stdin := slices.Contains(c.Args().Slice(), "-")
		if stdin && (a.format != "human" || c.Bool("explain")) {
			return fail(exitUsage, errFixStdin)
		}
		if err := l.fix(sets, a); err != nil {
			return err
		}
		if stdin {
			return l.fixedStdin(sets, a, c.Bool("strict"))
		}
	}
	var f findings
	for _, s := range sets {
		f.check(s, a)
	}
	f.took = time.Since(began)
	f.failed = f.errors > 0 || c.Bool("strict") && f.warnings > 0
	if err := l.show(f, a); err != nil {
		return err
	}
	if f.failed {
		return fail(exitInvalid, errors.New(f.summary()))
	}
	return nil
}

// fixedStdin ends a run that printed a mended text: what is left to mend goes into the error alone.
func (l *linter) fixedStdin(sets []fileSet, a asked, strict bool) error {
	var f findings
	for _, s := range sets {
		f.check(s, a)
	}
	if f.errors > 0 || strict && f.warnings > 0 {
		return fail(exitInvalid, errors.New(f.summary()))
	}
	return nil
}

// readAsked checks the flags.
func readAsked(c *cli.Command) (asked, error) {
	a := asked{format: c.String("format")}
	if !slices.Contains([]string{"human", "json", "sarif", "github", "lsp"}, a.format) {
		return a, fmt.Errorf("--format must be human, json, sarif, github or lsp, this is %q", clipped(a.format))
	}
	narrow := false
	for _, f := range []string{"event", "branch", "tag", "changed"} {
		if c.IsSet(f) {
			narrow = true
			if !c.Bool("explain") {
				return a, fmt.Errorf("--%s is for --explain", f)
			}
		}
	}
	if c.IsSet("changed") {
		a.changed = workflow.Changed{Files: c.StringSlice("changed"), Known: true}
	}
	if !c.Bool("explain") {
		return a, nil
	}
	if !narrow || !c.IsSet("event") && !c.IsSet("branch") && !c.IsSet("tag") {
		a.triggers = usual()
		return a, nil
	}
	t, err := trigger(c.String("event"), c.String("branch"), c.String("tag"))
	a.triggers = []pipeline.Trigger{t}
	return a, err
}

// usual are the triggers that are explained when none is asked for.
func usual() []pipeline.Trigger {
	var out []pipeline.Trigger
	for _, u := range []struct{ event, branch, tag string }{
		{"push", defaultBranch, ""}, {"push", "", "v1.0.0"}, {"pull_request", defaultBranch, ""}, {"schedule", "", ""}, {"manual", "", ""},
	} {
		t, err := trigger(u.event, u.branch, u.tag)
		if err == nil { // these are right
			out = append(out, t)
		}
	}
	return out
}

// trigger is what would happen.
func trigger(event, branch, tag string) (pipeline.Trigger, error) {
	if event == "" {
		event = string(pipeline.Push)
	}
	t := pipeline.Trigger{Kind: pipeline.Kind(event)}
	if branch != "" && tag != "" {
		return t, errors.New("a push is of a branch or of a tag: give --branch or --tag")
	}
	if tag != "" && t.Kind != pipeline.Push {
		return t, fmt.Errorf("--tag is for --event push, not for %q", clipped(event))
	}
	if branch == "" {
		branch = defaultBranch
	}
	switch t.Kind {
	case pipeline.Push:
		t.Ref = "refs/heads/" + branch
		if tag != "" {
			t.Ref = "refs/tags/" + tag
		}
	case pipeline.PullRequest:
		t.Pull = &pipeline.Pull{TargetBranch: branch, Action: workflow.Opened}
	case pipeline.Manual, pipeline.Schedule:
		t.Ref = "refs/heads/" + branch
	default:
		return t, fmt.Errorf("--event must be push, pull_request, manual or schedule, this is %q", clipped(event))
	}
	return t, nil
}
