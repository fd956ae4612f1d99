// Command spindle is a CI server native to the AT Protocol: server, demo and tools in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

// Exit codes; the table is in docs/cli.md.
const (
	exitOK     = 0
	exitNotRun = 1
	exitUsage  = 2
	exitEnv    = 9
)

func main() {
	// The sandbox is this very binary under another name: that must be settled before anything else.
	runRunscIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// exitError carries the code to exit with.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "" // everything was said
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// fail makes err end the program with code.
func fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: code, err: err}
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := &cli.Command{
		Name:  "spindle",
		Usage: "a CI server native to the AT Protocol",
		Description: "Try it:     spindle demo\n" +
			"Serve:      spindle serve        (settings come from SPINDLE_* in the environment)\n" +
			"Develop:    spindle dev          (a small network on this machine, without the story)",
		Writer: stdout, ErrWriter: stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Suggest:        true,
		Commands: []*cli.Command{
			demoCommand(stdout, stderr), devCommand(stdout, stderr), serveCommand(environ, stderr),
			initCommand(stdout), runCommand(environ, os.Stdin, stdout, stderr), lintCommand(environ, os.Stdin, stdout), explainCommand(stdout), schemaCommand(stdout),
			keyCommand(stdout), doctorCommand(environ, stdout), statusCommand(stdout), versionCommand(stdout),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fail(exitUsage, fmt.Errorf("unknown command %q; spindle --help lists them", c.Args().First()))
			}
			// The unit files of the existing server start the binary without arguments.
			if has(environ, "SPINDLE_SERVER_HOSTNAME") {
				return serve(ctx, environ, stderr)
			}
			return cli.ShowAppHelp(c)
		},
	}
	err := root.Run(ctx, args)
	if err == nil {
		return exitOK
	}
	var e *exitError
	if errors.As(err, &e) {
		if e.err != nil {
			fmt.Fprintf(stderr, "spindle: %v\n", e.err)
		}
		return e.code
	}
	fmt.Fprintf(stderr, "spindle: %v\n", err)
	return exitUsage
}
