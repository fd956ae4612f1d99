// Command push measures the way from a push to its first step: from the moment at which the knot sends its notice to
// what the step itself reads from the clock.
//
// Every sample is a real commit, pushed with git to a knot over HTTP. Its notice is sent twice: for the branch that
// moved, when the spindle has to fetch the workflow files, and for another branch at the same commit, when they are
// here. The difference of the two is the fetch.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"spindle/bench/internal/measure"
	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/engines/sandbox"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	n := flag.Int("n", 40, "pushes to measure with each engine")
	warm := flag.Int("warmup", 5, "pushes before that")
	only := flag.String("only", "", "measure one engine alone: dummy or sandbox")
	flag.Parse()
	if *only != "" && *only != "dummy" && *only != "sandbox" {
		return fmt.Errorf("-only %q is not dummy or sandbox", *only)
	}
	binary, done, err := measure.Binary(ctx)
	if err != nil {
		return err
	}
	defer done()
	b := &bench{n: *n, warm: *warm}
	b.w, err = measure.World(ctx, func(state string) ([]engines.Engine, error) {
		b.box, err = sandbox.New(sandbox.Config{Runsc: binary, StateDir: filepath.Join(state, "s")})
		return []engines.Engine{b.box, dummy.New(dummy.Config{})}, err
	}, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.w.Close()) }()
	b.viewer = b.w.Client(nil)

	if *only != "sandbox" {
		if err := b.plain(ctx); err != nil {
			return err
		}
	}
	if *only == "dummy" {
		return nil
	}
	return b.boxed(ctx)
}

type bench struct {
	n, warm int
	w       *world.World
	viewer  *world.Client
	box     *sandbox.Engine
}

// plain measures with the engine that runs nothing.
func (b *bench) plain(ctx context.Context) error {
	plain, err := b.pushes(ctx, series{name: "dummy", engine: "dummy", command: "now", skip: true, quiet: 30 * time.Millisecond})
	if err != nil {
		return err
	}
	plain.fetch.Print("push_fetch")
	plain.here.Print("push_dummy")
	plain.whole.Print("push_dummy_with_fetch")
	plain.stages("dummy")
	return nil
}

// boxed measures with the sandbox, beside sandboxes alone.
func (b *bench) boxed(ctx context.Context) error {
	if _, err := b.box.Probe(ctx); err != nil {
		measure.Note("the sandbox is left out: %v", err)
		return nil
	}
	boxed, err := b.pushes(ctx, series{name: "sandbox", engine: "sandbox", command: "date +%s%N", skip: true, bare: true, quiet: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	boxed.bare.Print("sandbox_bare_start")
	boxed.here.Print("push_sandbox")
	bound := 15 + 1.25*measure.Millis(boxed.bare.P50())
	measure.Print("push_sandbox_bound", bound, "ms")
	measure.Print("push_sandbox_to_bound", measure.Millis(boxed.here.P50())/bound, "ratio")
	measure.Print("push_sandbox_over_bare", measure.Millis(boxed.here.P50()-boxed.bare.P50()), "ms")
	boxed.stages("sandbox")
	cloned, err := b.pushes(ctx, series{name: "clone", engine: "sandbox", command: "date +%s%N", quiet: 400 * time.Millisecond})
	if err != nil {
		return err
	}
	cloned.whole.Print("push_sandbox_with_fetch_and_clone")
	return nil
}

// series says what is pushed.
type series struct {
	name, engine string
	command      string // prints the nanoseconds since 1970
	skip         bool   // no checkout
	bare         bool   // measures the sandbox alone as well, in turns
	// quiet is how long nobody looks, so that who reads the result takes no time from the step.
	quiet time.Duration
}

// result holds the samples of a series.
type result struct {
	whole, here, fetch, bare measure.Samples
	plan, claim, step        measure.Samples // parts of here
}

func (r result) stages(name string) {
	r.plan.Print("push_" + name + "_part_notice_to_planned")
	r.claim.Print("push_" + name + "_part_planned_to_claimed")
	r.step.Print("push_" + name + "_part_claimed_to_step")
}

func (b *bench) pushes(ctx context.Context, s series) (r result, err error) {
	repo, err := measure.NewRepo(ctx, b.w, s.name)
	if err != nil {
		return r, err
	}
	file := fmt.Sprintf("when: [{event: push, branch: ['**']}]\nengine: %s\nclone: {skip: %t}\nsteps: [{name: clock, command: \"%s\"}]\n",
		s.engine, s.skip, s.command)
	for i := range b.warm + b.n {
		sha, err := repo.Commit(ctx, map[string]string{
			".tangled/workflows/clock.yml": file, "README.md": fmt.Sprintf("push %d\n", i),
		})
		if err != nil {
			return r, err
		}
		whole, err := b.push(ctx, repo, "main", sha, s.quiet)
		if err != nil {
			return r, err
		}
		again := fmt.Sprintf("again-%d", i)
		if err := repo.Branch(ctx, again, sha); err != nil {
			return r, err
		}
		here, err := b.push(ctx, repo, again, sha, s.quiet)
		if err != nil {
			return r, err
		}
		var bare time.Duration
		if s.bare {
			if bare, err = b.alone(ctx, i, s.command); err != nil {
				return r, err
			}
		}
		if i < b.warm {
			continue
		}
		r.whole.Add(whole.step)
		r.here.Add(here.step)
		r.fetch.Add(whole.step - here.step)
		r.bare.Add(bare)
		r.plan.Add(here.planned)
		r.claim.Add(here.claimed - here.planned)
		r.step.Add(here.step - here.claimed)
	}
	return r, nil
}

// times are moments of one push, counted from its notice.
type times struct{ planned, claimed, step time.Duration }

// push sends one notice and waits for the end of what it started.
func (b *bench) push(ctx context.Context, repo *measure.Repo, branch, sha string, quiet time.Duration) (t times, err error) {
	began, id, err := repo.Notify(ctx, branch, sha)
	if err != nil {
		return t, err
	}
	time.Sleep(quiet)
	var said strings.Builder
	did := repo.DID.String()
	err = b.viewer.Follow(ctx, did, id, func(e world.Entry) {
		if e.Data != nil && e.Data.Stream == "stdout" {
			said.WriteString(e.Data.Content)
		}
	})
	if err != nil {
		return t, err
	}
	at, err := clock(said.String())
	if err != nil {
		return t, fmt.Errorf("pipeline %s: %w", id, err)
	}
	t.step = at.Sub(began)
	p, err := b.viewer.Pipeline(ctx, did, id)
	if err != nil {
		return t, err
	}
	for _, f := range []struct {
		text *string
		to   *time.Duration
	}{{p.CreatedAt, &t.planned}, {p.StartedAt, &t.claimed}} {
		if f.text == nil {
			return t, fmt.Errorf("pipeline %s does not say when it was planned and started", id)
		}
		at, err := time.Parse(time.RFC3339Nano, *f.text)
		if err != nil {
			return t, fmt.Errorf("pipeline %s: %w", id, err)
		}
		*f.to = at.Sub(began)
	}
	return t, nil
}

// alone starts a sandbox without a spindle around it and returns how long it took to its first command's clock.
func (b *bench) alone(ctx context.Context, i int, command string) (d time.Duration, err error) {
	began := time.Now()
	a, err := b.box.Open(ctx, engines.Spec{ID: fmt.Sprintf("bare-%d", i)})
	if err != nil {
		return 0, fmt.Errorf("open a sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close(context.WithoutCancel(ctx))) }()
	var out bytes.Buffer
	if _, err := a.Run(ctx, engines.Command{Script: command, Stdout: &out}); err != nil {
		return 0, fmt.Errorf("run in a sandbox: %w", err)
	}
	at, err := clock(out.String())
	return at.Sub(began), err
}

// clock reads what a step printed.
func clock(text string) (time.Time, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the step did not print a clock but %q", text)
	}
	return time.Unix(0, n), nil
}
