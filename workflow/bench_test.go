package workflow

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

// typical is a file of about 60 lines as people write them; the mutations start from it as well.
func typical(t testing.TB) []byte {
	t.Helper()
	src, err := os.ReadFile("testdata/mutations/base.yml")
	require.NoError(t, err)
	return src
}

func pushed() pipeline.Trigger {
	return pipeline.Trigger{Kind: pipeline.Push, Ref: "refs/heads/main"}
}

// heavy is a workflow of about size bytes: many steps with long commands, or with list as many values as are allowed.
func heavy(size int, list bool) []byte {
	var b bytes.Buffer
	b.WriteString("when:\n  - {event: push, branch: [main, \"release/**\"], paths: [\"src/**\", \"!**/*.md\"]}\nsteps:\n")
	const steps = 90
	for i := range steps {
		fmt.Fprintf(&b, "  - name: step %d\n    environment:\n", i)
		if list {
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
	return bytes.ReplaceAll(b.Bytes(), []byte("    environment:\n    command"), []byte("    command"))
}

// onCPU adds what the operations of b cost in processor time, which a busy machine does not change as much as the clock.
// The collector's share is in it.
func onCPU(b *testing.B) {
	b.Helper()
	before := processorTime(b)
	b.Cleanup(func() { b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op") })
}

func processorTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkTypical is parse, validate, match and compile of one file.
func BenchmarkTypical(b *testing.B) {
	src := typical(b)
	in := Input{
		Files: []File{{Path: Dir + "test.yml", Data: src}}, Trigger: pushed(), DefaultBranch: "main",
		Changed: Changed{Files: []string{"src/main.go", "README.md"}, Known: true},
	}
	require.Len(b, Compile(in).Workflows, 1)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	onCPU(b)
	for b.Loop() {
		Compile(in)
	}
}

// BenchmarkFullCommit is the largest commit that is taken: 64 files of 256 KiB.
func BenchmarkFullCommit(b *testing.B) {
	for _, list := range []bool{false, true} {
		b.Run(map[bool]string{false: "commands", true: "values"}[list], func(b *testing.B) {
			in := Input{Trigger: pushed(), Changed: Changed{Files: []string{"src/main.go"}, Known: true}}
			src := heavy(256<<10, list)
			require.Greater(b, len(src), 230<<10)
			require.LessOrEqual(b, len(src), 256<<10)
			for i := range 64 {
				in.Files = append(in.Files, File{Path: fmt.Sprintf("%sw%02d.yml", Dir, i), Data: src})
			}
			p := Compile(in)
			require.Len(b, p.Workflows, 64)
			require.False(b, HasErrors(p.Workflows[0].Diagnostics), "%v", p.Workflows[0].Diagnostics)
			b.SetBytes(int64(64 * len(src)))
			b.ReportAllocs()
			for b.Loop() {
				Compile(in)
			}
		})
	}
}

// hostile are files that are made to be slow, each as large as is allowed.
func hostile() map[string]string {
	const most = 256 << 10
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (most-len(head)-len(tail))/len(unit)) + tail
	}
	const tail = "\nsteps: [{command: a}]\n"
	return map[string]string{
		"aliases":         fill("a: &a [x]\nb: [", "*a,", "]\n"),
		"anchors":         fill("a: [", "&a b,", "]\n"),
		"brackets":        fill("steps: ", "[", ""),
		"braces":          fill("steps: ", "{a: ", ""),
		"dashes":          fill("", "- ", "a"),
		"question marks":  fill("", "? ", "a"),
		"keys":            fill("", "a:\n", ""),
		"long key":        fill("", "k", ": a\n"),
		"quotes":          fill("a: [", "'',", "]\n"),
		"open quote":      fill("a: \"", "b", "\n"),
		"escapes":         fill("a: \"", `\x41`, "\""+tail),
		"blank lines":     fill("a: b", "\n", tail),
		"spaces":          fill("a:", " ", "b"+tail),
		"comments":        fill("", "# c\n", tail),
		"comment columns": fill("steps:\n", "  # c\n", "  - command: a\n"),
		"colons":          fill("a: ", ":", tail),
		"folded":          fill("steps:\n  - command: >\n", "      a\n", ""),
		"plain lines":     fill("steps:\n  - command: a\n", "      b\n", ""),
		"quoted lines":    fill("steps:\n  - command: \"a\n", "      b\n", "\"\n"),
		"tags":            fill("a: [", "!!str b,", "]\n"),
		"tags deep":       fill("a: ", "!!str ", "b\n"),
		"documents":       fill("", "---\n", ""),
		"directives":      fill("", "%A b\n", ""),
		"tabs":            fill("a:\n", "\tb: c\n", ""),
		"merge":           fill("a: {", "<<: b,", "}\n"),
		"steps wrong":     fill("steps:\n", "  - {x: y}\n", ""),
		"unknown keys":    fill("steps:\n  - {", "enviromnt: a, ", "}\n"),
		"globs":           "when: [{event: push, branch: [" + strings.Repeat("\""+strings.Repeat("{a,b}", 6)+strings.Repeat("*a", 100)+"\",", 99) + "]}]" + tail,
		"cron":            "when:\n" + strings.Repeat("  - {event: schedule, schedule: ["+strings.Repeat("{cron: \"0 0 30 2 *\"},", 20)+"]}\n", 100) + tail,
		"not a workflow":  fill("", "a ", ""),
		"bytes":           strings.Repeat("\xff", most),
		"carriage":        fill("a: b", "\r\n", tail),
		"unicode":         fill("a: ", "\u00e9", tail),
		"block headers":   fill("a: |\n", "  b: |\n", tail),
		"brackets shut":   fill("a: [", "[],", "]\n"),
		"flow keys":       fill("a: {", "b: c, ", "}\n"),
	}
}

// BenchmarkHostile is the slowest of the files that are made to be slow.
func BenchmarkHostile(b *testing.B) {
	for name, src := range hostile() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			in := Input{Files: []File{{Path: Dir + "x.yml", Data: []byte(src)}}, Trigger: pushed()}
			for b.Loop() {
				Compile(in)
			}
		})
	}
	bad, err := filepath.Glob("testdata/bad/*.yml")
	require.NoError(b, err)
	for _, file := range bad {
		src, err := os.ReadFile(file)
		require.NoError(b, err)
		b.Run("corpus/"+filepath.Base(file), func(b *testing.B) {
			for b.Loop() {
				Parse(file, src, Limits{})
			}
		})
	}
}
