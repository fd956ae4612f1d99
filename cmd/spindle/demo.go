package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/sandbox"
	"spindle/obs"
)

// worldFlags are what demo and dev have in common.
func worldFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "dir", Usage: "keep everything in `FOLDER`, instead of a temporary one that is removed"},
		&cli.IntFlag{Name: "port", Value: 6555, Usage: "listen on this `PORT` of the loopback address, or the next free one"},
		&cli.BoolFlag{Name: "verbose", Usage: "show the server's own log"},
	}
}

func demoCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "see a push become a sandboxed run, on this machine alone",
		Description: "Examples:\n  spindle demo            three acts, then your own pushes run\n" +
			"  spindle demo --check    the acts without a terminal; exits 0 when every one held",
		Flags: append(worldFlags(),
			&cli.BoolFlag{Name: "auto", Usage: "do not wait for a key before approving"},
			&cli.BoolFlag{Name: "check", Usage: "do the acts, check each, and exit 0 or 1"},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			check := c.Bool("check")
			t := &teller{out: stdout, quiet: false}
			began := time.Now()
			t.say("Spindle demo — everything runs on this machine; nothing leaves it.     Ctrl-C to stop")
			w, err := startWorld(ctx, c, stderr)
			if err != nil {
				return fail(exitEnv, err)
			}
			err = story(ctx, w, t, storyOptions{check: check, ask: !check && !c.Bool("auto") && terminal(os.Stdin), began: began})
			if err == nil && !check {
				t.stay(w)
				<-ctx.Done()
			}
			if cerr := w.Close(); err == nil && cerr != nil && !check {
				err = cerr
			}
			if ctx.Err() != nil && !check {
				return nil // stopped by the person, which is how a demo ends
			}
			return fail(exitNotRun, err)
		},
	}
}

func devCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "a small network and a spindle on this machine, without the story",
		Flags: worldFlags(),
		Action: func(ctx context.Context, c *cli.Command) error {
			t := &teller{out: stdout}
			w, err := startWorld(ctx, c, stderr)
			if err != nil {
				return fail(exitEnv, err)
			}
			hello, err := w.Hello(ctx)
			if err == nil {
				t.network(w, time.Time{})
				t.clone(hello.NamedURL())
				t.say("  records    PLC %s · PDS %s · Jetstream %s", w.Net.PLCURL(), w.Net.PDSURL(), w.Net.JetstreamURL())
				<-ctx.Done()
			}
			if cerr := w.Close(); err == nil {
				err = cerr
			}
			return fail(exitNotRun, err)
		},
	}
}

// startWorld makes the world that the flags ask for, with the sandbox engine.
func startWorld(ctx context.Context, c *cli.Command, stderr io.Writer) (*world.World, error) {
	level := "error"
	if c.Bool("verbose") {
		level = "debug"
	}
	log, err := obs.NewLogger(stderr, "text", level)
	if err != nil {
		return nil, err
	}
	return world.Start(ctx, world.Options{
		Dir: c.String("dir"), Addr: fmt.Sprintf("127.0.0.1:%d", c.Int("port")), Log: log,
		Engines: func(state string) ([]engines.Engine, error) { return sandboxes(ctx, state, log) },
	})
}

// sandboxes is the sandbox engine, proven to work here.
func sandboxes(ctx context.Context, state string, log *slog.Logger) ([]engines.Engine, error) {
	e, err := newSandbox(state)
	if err != nil {
		// Names of sockets have a short limit, so a deep folder does not do.
		short, terr := os.MkdirTemp("", "spindle-box-")
		if terr != nil {
			return nil, err
		}
		log.Debug("the folder's path is too long for sockets", "using", short, "err", err)
		if e, err = newSandbox(filepath.Join(short, "s")); err != nil {
			return nil, err
		}
	}
	if err := probe(ctx, e); err != nil {
		return nil, err
	}
	return []engines.Engine{e}, nil
}

var _ engines.Engine = (*sandbox.Engine)(nil)

// terminal tells whether f is one.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// waitKey waits for a line that begins with key, or for ctx.
func waitKey(ctx context.Context, in io.Reader, key byte) error {
	lines := make(chan string)
	go func() {
		// A read of the terminal cannot be ended; the goroutine ends with the process.
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l, ok := <-lines:
			if !ok || (l != "" && l[0] == key) {
				return nil
			}
		}
	}
}
