// Command run measures `spindle run`: how long a workflow of one and of 20 steps takes, as plain processes and in a
// sandbox, beside bash that does the same steps in the same run; how long the binary takes to start; and how fast
// output gets through.
//
// Everything is the real binary in a process of its own, in a repository of a few files.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"spindle/bench/internal/measure"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	n := flag.Int("n", 20, "times that each is run")
	lines := flag.Int("lines", 500_000, "lines of output")
	flag.Parse()
	binary, done, err := measure.Binary(ctx)
	if err != nil {
		return err
	}
	defer done()
	dir, err := os.MkdirTemp("", "spindle-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := prepare(ctx, dir, *lines); err != nil {
		return err
	}
	b := bench{dir: dir, binary: binary}
	one, twenty := script(1), script(20)
	kinds := []struct {
		name string
		args []string
	}{
		{"start", []string{binary, "version"}},
		{"bash_1", one},
		{"bash_20", twenty},
		{"run_plain_1", []string{binary, "run", "--isolation", "off", "one"}},
		{"run_plain_20", []string{binary, "run", "--isolation", "off", "twenty"}},
		{"run_sandbox_1", []string{binary, "run", "one"}},
		{"run_sandbox_20", []string{binary, "run", "twenty"}},
	}
	samples := make([]measure.Samples, len(kinds))
	for range *n {
		for i, k := range kinds { // in turns, so that a busy moment hits all of them
			took, err := b.time(ctx, k.args)
			if err != nil {
				return err
			}
			samples[i].Add(took)
		}
	}
	for i, k := range kinds {
		samples[i].Print(k.name)
	}
	took, err := b.time(ctx, []string{binary, "run", "--isolation", "off", "lines"})
	if err != nil {
		return err
	}
	measure.Print("run_lines", float64(*lines)/took.Seconds()/1e6, "Mlines/s")
	return nil
}

// script is bash doing n steps as `spindle run` does them: a shell for each.
func script(n int) []string {
	return []string{"bash", "-c", strings.Repeat("bash -c 'echo hello'\n", n)}
}

// prepare makes a repository with three workflows.
func prepare(ctx context.Context, dir string, lines int) error {
	flows := filepath.Join(dir, ".tangled", "workflows")
	if err := os.MkdirAll(flows, 0o755); err != nil {
		return fmt.Errorf("make a repository: %w", err)
	}
	for name, text := range map[string]string{
		"one.yml":    "clone: {skip: true}\nsteps:\n  - command: echo hello\n",
		"twenty.yml": "clone: {skip: true}\nsteps:\n" + strings.Repeat("  - command: echo hello\n", 20),
		"lines.yml":  fmt.Sprintf("clone: {skip: true}\nsteps:\n  - command: seq 1 %d\n", lines),
	} {
		if err := os.WriteFile(filepath.Join(flows, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write a workflow: %w", err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"},
	} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

type bench struct{ dir, binary string }

// time runs a command into a pipe, to its end.
func (b bench) time(ctx context.Context, args []string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = b.dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", args[0], err)
	}
	buf := make([]byte, 64<<10)
	for {
		if _, err := out.Read(buf); err != nil {
			break // its end
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%v: %w: %s", args, err, said.String())
	}
	return time.Since(began), nil
}
