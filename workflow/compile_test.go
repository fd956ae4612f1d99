package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
)

func file(name, src string) File { return File{Path: Dir + name, Data: []byte(src)} }

func names(p Plan) []string {
	var out []string
	for _, w := range p.Workflows {
		mark := ""
		if w.Spec == nil {
			mark = "!"
		}
		out = append(out, mark+w.Name)
	}
	return out
}

func TestCompile(t *testing.T) {
	t.Parallel()
	p := Compile(Input{
		Files: []File{
			file("test.yml", w0), file("deploy.yaml", "when: [{event: push, tag: v*}]\nsteps: [{command: a}]\n"),
			file("broken.yml", "steps: 5\n"), file("all.yml", "steps: [{command: a}]\n"), file("README.md", "# hello"),
			file("sub/x.yml", w0),
		},
		Trigger: push("refs/heads/main"), Engines: []string{Sandbox, Dummy},
	})
	require.Equal(t, []string{"all", "!broken", "test"}, names(p))
	require.Equal(t, []NotMatched{{"deploy", "wants tag v*, got branch main"}}, p.NotMatched)
	require.Equal(t, []string{warnFile, warnFile}, codes(p.Diagnostics))
	sum := sha256.Sum256([]byte(w0))
	test := p.Workflows[2]
	require.Equal(t, hex.EncodeToString(sum[:]), test.Digest)
	require.Equal(t, Dir+"test.yml", test.Path)
	require.Equal(t, w0, string(test.Source))
	require.Equal(t, Dir+"broken.yml", p.Workflows[1].Diagnostics[0].File)
}

func TestCompileShowsInvalidFilesWhateverTheTrigger(t *testing.T) {
	t.Parallel()
	for _, tr := range []pipeline.Trigger{
		push("refs/heads/x"), push("refs/tags/x"), pull("x", "closed"), {Kind: pipeline.Manual}, {Kind: pipeline.Schedule},
	} {
		p := Compile(Input{Files: []File{file("bad.yml", "a: ["), file("empty.yml", "")}, Trigger: tr})
		require.Equal(t, []string{"!bad", "!empty"}, names(p))
		require.True(t, HasErrors(p.Workflows[0].Diagnostics))
	}
}

func TestCompileEngineNotOffered(t *testing.T) {
	t.Parallel()
	p := Compile(Input{
		Files: []File{
			file("a.yml", "name: a\nengine: nixery\nsteps: [{command: a}]\n"), file("b.yml", "steps: [{command: a}]\n"),
			file("c.yml", "when: [{event: manual}]\nengine: nixery\nsteps: [{command: a}]\n"),
		},
		Trigger: push("refs/heads/main"), Engines: []string{Microvm, Dummy},
	})
	require.Equal(t, []string{"!a", "!b"}, names(p))
	d := p.Workflows[0].Diagnostics[0]
	require.Equal(t, `error[E-WF-ENGINE]: .tangled/workflows/a.yml:2:9: engine "nixery" is not offered here (has: dummy, microvm); fix: engine: microvm, or use a spindle that offers nixery`, d.String())
	require.Zero(t, p.Workflows[1].Diagnostics[0].Line)
	require.Len(t, p.NotMatched, 1, "a workflow that would not start here needs no engine")
	require.Equal(t, []string{"a"}, names(Compile(Input{Files: []File{file("a.yml", "engine: nixery\nsteps: [{command: a}]\n")}})))
}

func TestCompileManual(t *testing.T) {
	t.Parallel()
	files := []File{
		file("build.yml", w0), file("test.yml", "when: [{event: push, tag: x}]\nsteps: [{command: a}]\n"),
		file("bad.yml", "a: b\n"),
	}
	manual := func(only ...string) Plan {
		return Compile(Input{Files: files, Trigger: pipeline.Trigger{Kind: pipeline.Manual, Only: only}})
	}
	require.Equal(t, []string{"!bad", "build", "test"}, names(manual()))
	require.Equal(t, []string{"test"}, names(manual("test")))
	require.Equal(t, []string{"build", "test"}, names(manual("test.yml", "build", "test")))
	require.Equal(t, []string{"!bad"}, names(manual("bad")))
	p := manual("tset", "build")
	require.Equal(t, []string{"build"}, names(p))
	require.Equal(t, `error[E-WF-ONLY]: there is no workflow "tset" at this commit (can be started: bad, build, test); did you mean "test"?; fix: start test`, p.Diagnostics[0].String())
	p = Compile(Input{Trigger: pipeline.Trigger{Kind: pipeline.Manual, Only: []string{"x"}}})
	require.Equal(t, []string{codeOnly}, codes(p.Diagnostics))
}

func TestCompileOneNamePerPlan(t *testing.T) {
	t.Parallel()
	p := Compile(Input{
		Files:   []File{file("a.yaml", w0), file("a.yml", w0), file("b.yml", w0), file("\x01.yml", w0), file("a/../b.yml", w0), file("-x.yml", w0), file(".yml", w0)},
		Trigger: push("refs/heads/main"),
	})
	seen := map[string]bool{}
	for _, w := range p.Workflows {
		require.False(t, seen[w.Name], w.Name)
		seen[w.Name] = true
		require.Equal(t, w.Name == "b", w.Spec != nil, w.Name)
	}
	require.True(t, seen["a"])
	require.Len(t, p.Workflows, 5)
}

func TestB028SameFilesSamePlan(t *testing.T) {
	t.Parallel()
	var files []File
	for i := 1; i <= 25; i++ {
		files = append(files, file(fmt.Sprintf("w%02d.yml", i), w0))
	}
	in := Input{Files: files, Trigger: push("refs/heads/main")}
	require.Len(t, Compile(in).Workflows, 25)
	require.Equal(t, Compile(in), Compile(in))
}

func TestCompileTooManyFiles(t *testing.T) {
	t.Parallel()
	var files []File
	for i := range 70 {
		files = append(files, file(fmt.Sprintf("w%02d.yml", i), w0))
	}
	p := Compile(Input{Files: files, Trigger: push("refs/heads/main")})
	require.Len(t, p.Workflows, 64)
	require.Equal(t, []string{codeLimit}, codes(p.Diagnostics))
}

func TestT14SpecIsWhatRuns(t *testing.T) {
	t.Parallel()
	a := Compile(Input{Files: []File{file("a.yml", w0)}, Trigger: push("refs/heads/main")}).Workflows[0]
	b := Compile(Input{Files: []File{file("a.yml", w0+"# changed\n")}, Trigger: push("refs/heads/main")}).Workflows[0]
	require.NotEqual(t, a.Digest, b.Digest, "another file has another digest")
	c := Compile(Input{Files: []File{file("a.yml", "steps: [{command: 'echo ${{ x }} $(id)'}]\n")}}).Workflows[0]
	require.Equal(t, "echo ${{ x }} $(id)", c.Spec.Steps[0].Command, "the compiler puts nothing into commands")
}

func TestNeedsPaths(t *testing.T) {
	t.Parallel()
	with := file("a.yml", "when: [{event: push, branch: a, paths: src/**}]\nsteps: [{command: a}]\n")
	require.True(t, NeedsPaths([]File{file("b.yml", w0), with}, Limits{}))
	require.False(t, NeedsPaths([]File{file("b.yml", w0), file("c.yml", "paths: [")}, Limits{}))
	require.False(t, NeedsPaths([]File{file("c.yml", "cache: [{key: a, paths: b}]\nsteps: [{command: a}]\n")}, Limits{}))
	require.False(t, NeedsPaths(nil, Limits{}))
}

// TestT32Bombs feeds files that blow up readers of YAML. Every one is answered, and small in memory.
func TestT32Bombs(t *testing.T) {
	t.Parallel()
	lol := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		lol += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	const size = 250 << 10
	for name, src := range map[string]string{
		"aliases":      lol + "steps: *i\n",
		"self":         "a: &a [*a]\n",
		"blank lines":  "a: |\n" + strings.Repeat("\n", size),
		"blank runs":   strings.Repeat("a: |\n"+strings.Repeat("\n", 99), size/104),
		"spaced lines": "a: |\n" + strings.Repeat("  \n", size/3),
		"keys":         strings.Repeat("a: b\n", size/5),
		"many keys":    manyKeys(12_000),
		"flow keys":    "{" + strings.Repeat("a: b,", size/5) + "}",
		"dashes":       strings.Repeat("- ", size/2),
		"brackets":     strings.Repeat("[", size),
		"braces":       strings.Repeat("{", size),
		"questions":    strings.Repeat("? ", size/2),
		"colons":       strings.Repeat(": ", size/2),
		"tags":         strings.Repeat("!a ", size/3),
		"anchors":      strings.Repeat("&a ", size/3),
		"documents":    strings.Repeat("---\n", size/4),
		"directives":   strings.Repeat("%a\n", size/3),
		"commas":       "[" + strings.Repeat(",", size),
		"quote":        "a: \"" + strings.Repeat("x\n", size/2),
		"escapes":      "a: \"" + strings.Repeat(`\u0041`, size/6) + "\"",
		"comments":     strings.Repeat("#\n", size/2),
		"scalar":       "a: " + strings.Repeat("9", size),
		"folded":       "a: >\n" + strings.Repeat("  x\n\n", size/5),
		"stairs":       stairs(600),
		"stairs back":  strings.Repeat(stairs(30), 100),
		"mixed":        strings.Repeat("- {a: [b, {c: d}]}\n", size/19),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ds := Parse("bomb.yml", []byte(src), Limits{})
			require.Nil(t, s)
			require.True(t, HasErrors(ds))
			require.LessOrEqual(t, len(ds), DefaultLimits().Diagnostics+1)
			for _, d := range ds {
				require.Less(t, len(d.String()), 1000)
			}
		})
	}
}

func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestCompileIsDeterministic compiles random files in two orders.
func TestCompileIsDeterministic(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"when: [{event: push, branch: main}]\n", "when: [{event: push, tag: v*}]\n", "engine: dummy\n", "engine: nixry\n", "zebra: 1\n",
		"steps: [{command: a}]\n", "environment: {A: b, C: d}\n", "when: [{event: push, branch: '**', paths: [src/**, '!x']}]\n", "\t\n", "a: [\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		var files []File
		for i := range rapid.IntRange(0, 8).Draw(t, "files") {
			src := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 5).Draw(t, "pieces"), "")
			files = append(files, file(fmt.Sprintf("f%d.%s", i, rapid.SampledFrom([]string{"yml", "yaml", "txt"}).Draw(t, "ending")), src))
		}
		in := Input{
			Files: files, DefaultBranch: "main", Engines: []string{Sandbox},
			Trigger: push(rapid.SampledFrom([]string{"refs/heads/main", "refs/tags/v1", "x"}).Draw(t, "ref")),
			Changed: Changed{Files: []string{"src/a", "b"}, Known: rapid.Bool().Draw(t, "known")},
		}
		want := Compile(in)
		in.Files = rapid.Permutation(files).Draw(t, "order")
		require.Equal(t, want, Compile(in))
		total := len(want.Workflows) + len(want.NotMatched) + len(want.Diagnostics)
		require.GreaterOrEqual(t, total, len(files), "every file is told of")
	})
}
