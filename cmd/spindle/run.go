package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"spindle/desk"
	"spindle/internal/clock"
	"spindle/obs"
	"spindle/pipeline"
	"spindle/workflow"
)

// Exit codes of a run.
const (
	exitFailed    = 1
	exitTimeout   = 7
	exitCancelled = 8
)

func runCommand(environ []string, stdin *os.File, stdout, stderr io.Writer) *cli.Command {
	r := &runner{environ: environ, stdin: stdin, stdout: stdout, stderr: stderr}
	return &cli.Command{
		Name:      "run",
		Usage:     "run the workflows of this repository on this machine, as the server would",
		ArgsUsage: "[WORKFLOW...]",
		Description: "spindle run                                    what a push of the working tree would start\n" +
			"spindle run test --step unit                   one step of one workflow\n" +
			"spindle run --event pull_request --as fork     what a stranger's pull request would start\n" +
			"spindle run --plan                             what would start, and why the rest would not",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "directory", Aliases: []string{"C"}, Value: ".", Usage: "run in this folder's repository"},
			&cli.StringFlag{Name: "ref", Usage: "run this commit, branch or tag in place of the working tree"},
			&cli.StringFlag{Name: "event", Usage: "simulate push (default), pull_request, manual or schedule"},
			&cli.StringFlag{Name: "branch", Usage: "the branch that is pushed, or that a pull request comes from (default: the one checked out)"},
			&cli.StringFlag{Name: "tag", Usage: "the tag that is pushed"},
			&cli.StringFlag{Name: "target", Usage: "the branch that a pull request wants to go to (default: the repository's)"},
			&cli.StringSliceFlag{Name: "changed", Usage: "the files that changed, with commas between (default: asked of git)"},
			&cli.StringSliceFlag{Name: "input", Usage: "KEY=VALUE, an input of a manual run; may be repeated"},
			&cli.StringFlag{Name: "as", Usage: "fork: run as a stranger's code, without secrets"},
			&cli.StringFlag{Name: "step", Usage: "run this step alone; its name, or a number from 1"},
			&cli.StringFlag{Name: "from-step", Usage: "run this step and those after it"},
			&cli.BoolFlag{Name: "plan", Usage: "say what would start and why, and start nothing"},
			&cli.BoolFlag{Name: "list", Usage: "list workflows and steps, and start nothing"},
			&cli.StringSliceFlag{Name: "secret", Usage: "NAME of a secret; its value is taken from the environment, or asked for. May be repeated"},
			&cli.StringFlag{Name: "secrets-file", Usage: "file of NAME=VALUE lines; only you should be able to read it"},
			&cli.BoolFlag{Name: "shell-on-failure", Usage: "open a shell where a step failed (needs --isolation off)"},
			&cli.BoolFlag{Name: "watch", Usage: "run again whenever a file of the tree changes"},
			&cli.StringFlag{Name: "engine", Value: "auto", Usage: "auto: what the file says, or the nearest that this machine has; or sandbox, dummy"},
			&cli.BoolFlag{Name: "strict-engine", Usage: "refuse workflows whose own engine or image this machine does not have"},
			&cli.StringFlag{Name: "isolation", Value: "on", Usage: "on: in a sandbox; off: as plain processes of yours, with your files, network and home"},
			&cli.BoolFlag{Name: "in-place", Usage: "with --isolation off: work in the tree itself, and change it, in place of a copy"},
			&cli.IntFlag{Name: "jobs", Usage: "how many workflows run at a time (default: as many as there are processors)"},
			&cli.StringFlag{Name: "keep", Usage: "with --isolation off: keep what workflows left of their copies of the tree in this folder"},
			&cli.StringFlag{Name: "format", Usage: "tty, plain or json (default: tty on a terminal, else plain)"},
			&cli.BoolFlag{Name: "json", Usage: "the same as --format json"},
			&cli.BoolFlag{Name: "verbose", Usage: "show the log of the machinery"},
		},
		Action: r.run,
	}
}

// runner is `spindle run`.
type runner struct {
	environ        []string
	stdin          *os.File
	stdout, stderr io.Writer
}

func (r *runner) run(ctx context.Context, c *cli.Command) error {
	// The first Ctrl-C asks for the end; after it the next ends the program as it does any other.
	stop := context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
	defer stop()
	if c.Bool("watch") {
		return r.watch(ctx, c)
	}
	return r.once(ctx, c)
}

// once runs once.
func (r *runner) once(ctx context.Context, c *cli.Command) error {
	o, done, err := r.options(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	if c.Bool("plan") || c.Bool("list") {
		return r.plan(ctx, c, o)
	}
	if err := r.diagnose(ctx, o); err != nil {
		return err
	}
	out, err := desk.Run(ctx, o)
	switch {
	case errors.Is(err, desk.ErrInvalid):
		return fail(exitInvalid, err)
	case errors.Is(err, desk.ErrNothing), errors.Is(err, desk.ErrStep):
		return fail(exitNotFound, plainly(err))
	case errors.Is(err, desk.ErrSecrets), errors.Is(err, desk.ErrInputs):
		return fail(exitUsage, plainly(err))
	case errors.Is(err, desk.ErrEngine):
		return fail(exitEnv, plainly(err))
	case err != nil:
		return fail(exitEnv, err)
	}
	return ended(out)
}

// plainly takes the name of the package from an error for people.
func plainly(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "desk: ")) }

// ended is the exit code of a run. The report has said everything.
func ended(out desk.Outcome) error {
	code := exitFailed
	switch out.Status {
	case pipeline.Passed, pipeline.Skipped:
		return nil
	case pipeline.Timeout:
		code = exitTimeout
	case pipeline.Cancelled:
		code = exitCancelled
	case pipeline.Invalid:
		code = exitInvalid
	case pipeline.Error:
		code = exitEnv
	}
	return &exitError{code: code}
}

// options reads the command line. done removes what they hold.
func (r *runner) options(ctx context.Context, c *cli.Command) (o desk.Options, done func(), err error) {
	usage := func(format string, args ...any) (desk.Options, func(), error) {
		return o, nil, fail(exitUsage, fmt.Errorf(format, args...))
	}
	if c.String("step") != "" && c.String("from-step") != "" {
		return usage("--step and --from-step do not go together")
	}
	if as := c.String("as"); as != "" && as != "fork" {
		return usage("--as must be fork, this is %q", clipped(as))
	}
	if iso := c.String("isolation"); iso != "on" && iso != "off" {
		return usage("--isolation must be on or off, this is %q", clipped(iso))
	}
	plain := c.String("isolation") == "off"
	if c.String("keep") != "" && !plain {
		return usage("--keep needs --isolation off: what a sandbox wrote ends with it")
	}
	if c.Bool("in-place") && !plain {
		return usage("--in-place needs --isolation off: a sandbox never writes into your tree")
	}
	if c.Bool("shell-on-failure") && (!plain || !r.onTerminal()) {
		return usage("--shell-on-failure needs --isolation off and a terminal")
	}
	if o.Event, err = eventOf(c); err != nil {
		return usage("%w", err)
	}
	repo, err := desk.Find(ctx, c.String("directory"))
	if err != nil {
		return o, nil, fail(exitEnv, err)
	}
	o = desk.Options{
		Repo: repo, Event: o.Event, Branch: c.String("branch"), Tag: c.String("tag"), Target: c.String("target"), Fork: c.String("as") == "fork",
		Only: c.Args().Slice(), Step: c.String("step"), FromStep: c.String("from-step"), Jobs: c.Int("jobs"), Strict: c.Bool("strict-engine"),
		Isolated: !plain, InPlace: c.Bool("in-place"), Out: r.stdout, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler), Rerun: r.again(c),
	}
	if e := c.String("engine"); e != "auto" {
		o.Engine = e
	}
	if c.IsSet("changed") {
		o.Changed = workflow.Changed{Files: c.StringSlice("changed"), Known: true}
	}
	for _, kv := range c.StringSlice("input") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return usage("--input must be KEY=VALUE, this is %q", clipped(kv))
		}
		o.Inputs = append(o.Inputs, pipeline.Input{Key: k, Value: v})
	}
	if err := r.format(c, &o); err != nil {
		return usage("%w", err)
	}
	if c.Bool("verbose") {
		if o.Log, err = obs.NewLogger(r.stderr, "text", "debug"); err != nil {
			return o, nil, fail(exitEnv, err)
		}
	}
	if err := r.files(ctx, c, &o); err != nil {
		return o, nil, err
	}
	if c.Bool("plan") || c.Bool("list") {
		return o, func() {}, nil
	}
	if o.Secrets, err = r.secrets(c); err != nil {
		return o, nil, err
	}
	if o.Fork && len(o.Secrets) > 0 {
		return usage("--as fork runs without secrets; leave out --secret and --secrets-file")
	}
	done, err = r.machine(c, &o)
	return o, done, err
}

// eventOf is the event that the flags simulate.
func eventOf(c *cli.Command) (pipeline.Kind, error) {
	e := pipeline.Kind(c.String("event"))
	if e == "" {
		e = pipeline.Push
		switch {
		case c.IsSet("target") || c.String("as") == "fork":
			e = pipeline.PullRequest
		case len(c.StringSlice("input")) > 0:
			e = pipeline.Manual
		}
	}
	switch e {
	case pipeline.Push, pipeline.PullRequest, pipeline.Manual, pipeline.Schedule:
	default:
		return e, fmt.Errorf("--event must be push, pull_request, manual or schedule, this is %q", clipped(string(e)))
	}
	if c.IsSet("tag") && (c.IsSet("branch") || e != pipeline.Push) {
		return e, errors.New("--tag is of a push, and of no branch")
	}
	if c.IsSet("target") && e != pipeline.PullRequest {
		return e, errors.New("--target is of a pull request")
	}
	if c.String("as") == "fork" && e != pipeline.PullRequest {
		return e, errors.New("--as fork is of a pull request")
	}
	if len(c.StringSlice("input")) > 0 && e != pipeline.Manual {
		return e, errors.New("--input is of --event manual")
	}
	return e, nil
}

// files reads the workflow files, of the tree or of --ref.
func (r *runner) files(ctx context.Context, c *cli.Command, o *desk.Options) (err error) {
	if ref := c.String("ref"); ref != "" {
		if o.Ref, err = o.Repo.Commit(ctx, ref); err != nil {
			return fail(exitNotFound, err)
		}
		o.Files, err = o.Repo.Files(ctx, o.Ref)
		return fail(exitEnv, err)
	}
	s, err := readFolder(filepath.Join(o.Repo.Top, workflow.Dir))
	var e *exitError
	if errors.As(err, &e) && e.code == exitNotFound {
		return fail(exitNotFound, fmt.Errorf("there is no %s in %s; `spindle init` writes a first workflow", workflow.Dir, o.Repo.Top))
	}
	o.Files = s.files
	return err
}

// format decides how the run is shown.
func (r *runner) format(c *cli.Command, o *desk.Options) error {
	f := c.String("format")
	if c.Bool("json") {
		f = "json"
	}
	out, ok := r.stdout.(*os.File)
	tty := ok && terminal(out)
	if f == "" {
		f = "plain"
		if tty && value(r.environ, "TERM") != "dumb" {
			f = "tty"
		}
	}
	o.Format = desk.Format(f)
	if !slices.Contains([]desk.Format{desk.Plain, desk.Terminal, desk.JSON}, o.Format) {
		return fmt.Errorf("--format must be tty, plain or json, this is %q", clipped(f))
	}
	p := (&linter{environ: r.environ, stdout: r.stdout}).palette()
	o.Colour, o.ASCII = p.colour && o.Format != desk.JSON, p.ascii
	if tty {
		o.Width = func() int { return columns(out) }
	}
	return nil
}

// onTerminal tells whether a person can be asked.
func (r *runner) onTerminal() bool {
	if r.stdin == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(r.stdin.Fd()), unix.TCGETS)
	return err == nil
}

// again is the command line that repeats the run, but for names of workflows and steps.
func (r *runner) again(c *cli.Command) string {
	words := []string{"spindle run"}
	for _, f := range []string{"directory", "ref", "event", "branch", "tag", "target", "as", "isolation", "engine", "secrets-file"} {
		if c.IsSet(f) {
			words = append(words, "--"+f+" "+shellWord(c.String(f)))
		}
	}
	for _, f := range []string{"changed", "input", "secret"} {
		for _, v := range c.StringSlice(f) {
			words = append(words, "--"+f+" "+shellWord(v))
		}
	}
	return strings.Join(words, " ")
}

// shellWord makes s a word of a shell.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/=:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
