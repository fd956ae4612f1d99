// Command language measures the workflow language: what parse, validate, match and compile take for a file as people
// write them, for the largest commit that is taken, and for files that are made to be slow.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"spindle/bench/internal/measure"
	"spindle/pipeline"
	"spindle/workflow"
)

// typical is a file of about 60 lines as people write them.
//
//go:embed typical.yml
var typical []byte

func main() { measure.Main(run) }

func run(ctx context.Context) error {
	n := flag.Int("n", 2000, "samples of the typical file")
	flag.Parse()
	if err := ordinary(ctx, *n); err != nil {
		return err
	}
	for _, lists := range []bool{false, true} {
		if err := largest(lists); err != nil {
			return err
		}
	}
	return hostile(ctx)
}

func input(files ...[]byte) workflow.Input {
	in := workflow.Input{
		Trigger:       pipeline.Trigger{Kind: pipeline.Push, Ref: "refs/heads/main"},
		DefaultBranch: "main", Changed: workflow.Changed{Files: []string{"src/main.go", "README.md"}, Known: true},
	}
	for i, f := range files {
		in.Files = append(in.Files, workflow.File{Path: fmt.Sprintf("%sw%02d.yml", workflow.Dir, i), Data: f})
	}
	return in
}

// ordinary measures one typical file, by the clock and by the processor, whose figure a busy machine changes less.
func ordinary(ctx context.Context, n int) error {
	in := input(typical)
	if p := workflow.Compile(in); len(p.Workflows) != 1 || p.Workflows[0].Spec == nil {
		return fmt.Errorf("compile the typical file: %v", p)
	}
	var all measure.Samples
	before, err := processor()
	if err != nil {
		return err
	}
	for range n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		begin := time.Now()
		workflow.Compile(in)
		all.Add(time.Since(begin))
	}
	after, err := processor()
	if err != nil {
		return err
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	measure.Print("language_typical_p50", micros(all.P50()), "us")
	measure.Print("language_typical_p95", micros(all.Quantile(0.95)), "us")
	measure.Print("language_typical_cpu", micros(after-before)/float64(n), "us")
	return nil
}

// processor is the time that the processor has given to this process.
func processor() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("ask for the time used: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// largest measures 64 files of 256 KiB, whose bytes are long commands, or as many values as are allowed.
func largest(lists bool) error {
	src := heavy(256<<10, lists)
	files := make([][]byte, 64)
	for i := range files {
		files[i] = src
	}
	debug.FreeOSMemory()
	stop, most := watch()
	before, err := processor()
	if err != nil {
		return err
	}
	begin := time.Now()
	p := workflow.Compile(input(files...))
	took := time.Since(begin)
	stop()
	after, err := processor()
	if err != nil {
		return err
	}
	if len(p.Workflows) != 64 || p.Workflows[0].Spec == nil {
		return fmt.Errorf("compile the largest commit: %v", p.Workflows[0].Diagnostics)
	}
	name := "language_largest_" + map[bool]string{false: "commands", true: "values"}[lists]
	measure.Print(name, measure.Millis(took), "ms")
	measure.Print(name+"_cpu", measure.Millis(after-before), "ms")
	measure.Print(name+"_memory", float64(most())/(1<<20), "MiB")
	return nil
}

// watch follows how much the heap holds, what is not yet collected included.
func watch() (stop func(), most func() uint64) {
	var top atomic.Uint64
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			top.Store(max(top.Load(), m.HeapInuse))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-gone }, top.Load
}

func heavy(size int, lists bool) []byte {
	var b bytes.Buffer
	b.WriteString("when:\n  - {event: push, branch: [main, \"release/**\"], paths: [\"src/**\", \"!**/*.md\"]}\nsteps:\n")
	const steps = 90
	for i := range steps {
		fmt.Fprintf(&b, "  - name: step %d\n", i)
		if lists {
			b.WriteString("    environment:\n")
			for j := range 23 {
				fmt.Fprintf(&b, "      NAME_%d: value\n", j)
			}
		}
		b.WriteString("    command: |\n")
		for b.Len() < (i+1)*size/steps-200 {
			b.WriteString("      go test -run '^TestEverything$' -count=1 ./internal/some/package/...\n")
		}
		b.WriteString("      true\n")
	}
	return b.Bytes()
}

// hostile measures files that are made to be slow, each as large as is allowed, and names the slowest.
func hostile(ctx context.Context) error {
	const most = 256 << 10
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (most-len(head)-len(tail))/len(unit)) + tail
	}
	const tail = "\nsteps: [{command: a}]\n"
	worst, name := time.Duration(0), ""
	for what, src := range map[string]string{
		"aliases":      fill("a: &a [x]\nb: [", "*a,", "]\n"),
		"anchors":      fill("a: [", "&a b,", "]\n"),
		"merges":       fill("a: &a {x: y}\nb: {<<: [", "*a,", "]}\n"),
		"brackets":     fill("steps: ", "[", ""),
		"braces":       fill("steps: ", "{a: ", ""),
		"dashes":       fill("", "- ", "a"),
		"questions":    fill("", "? ", "a"),
		"keys":         fill("", "a:\n", ""),
		"quotes":       fill("a: [", "'',", "]\n"),
		"open quote":   fill("a: \"", "b", "\n"),
		"escapes":      fill("a: \"", `\x41`, "\""+tail),
		"blank lines":  fill("a: b", "\n", tail),
		"comments":     fill("", "# c\n", tail),
		"deep comment": fill("steps:\n", "  # c\n", "  - command: a\n"),
		"plain lines":  fill("steps:\n  - command: a\n", "      b\n", ""),
		"folded":       fill("steps:\n  - command: >\n", "      a\n", ""),
		"tags":         fill("a: [", "!!str b,", "]\n"),
		"documents":    fill("", "---\n", ""),
		"directives":   fill("", "%A b\n", ""),
		"tabs":         fill("a:\n", "\tb: c\n", ""),
		"wrong steps":  fill("steps:\n", "  - {x: y}\n", ""),
		"wrong keys":   fill("steps:\n  - {", "enviromnt: a, ", "}\n"),
		"words":        fill("", "a ", ""),
		"flow keys":    fill("a: {", "b: c, ", "}\n"),
		"templates":    fill("steps:\n  - command: |\n", "      ${{ x\n", "\n"),
		"conditions":   fill("steps:\n", "  - {command: a, if: \"true || true || true || true\"}\n", ""),
		"cells":        fill("matrix:\n  a: [b]\n  include:\n", "    - {a: c, d: e}\n", tail),
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		begin, err := processor()
		if err != nil {
			return err
		}
		workflow.Compile(input([]byte(src)))
		end, err := processor()
		if err != nil {
			return err
		}
		if took := end - begin; took > worst {
			worst, name = took, what
		}
	}
	measure.Note("the slowest of the files that are made to be slow: %s", name)
	measure.Print("language_hostile_worst_cpu", measure.Millis(worst), "ms")
	return nil
}
