package workflow

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// w0 is the smallest useful workflow.
const w0 = "when: [{event: [push], branch: [main]}]\nengine: sandbox\nsteps: [{name: hi, command: \"echo hi\"}]\n"

// full uses every key that is offered.
const full = `# everything
name: Everything
when:
  - event: [push, pull_request]
    branch: [main, "release-*", "!release-0"]
    tag: v*
    types: [opened, merged]
    paths: ["src/**", "!**/*.md"]
  - event: schedule
    schedule: [{cron: "H 2 * * *", timezone: Europe/Paris}, {cron: "@daily"}]
runs_on: [linux, gpu]
engine: microvm
image: nixos
dependencies: [go, "unstable#zig", github:x/y]
registry: {mine: "github:x/y"}
substituters: {"https://cache.example": "cache.example-1:abc="}
services:
  postgresql: {enable: true, port: 5432, version: "16", note: null, list: [1.50, a<b]}
virtualisation: {docker: {enable: false}}
clone: {depth: 50, submodules: false, tags: false, lfs: true}
environment:
  GOFLAGS: -mod=readonly
  CGO_ENABLED: "0"
audience: sts.amazonaws.com
cache:
  - key: go
    paths: [~/.cache/go-build, ~/go/pkg/mod]
    hash: go.sum
    fallback: true
    compression-level: 3
    when: always
timeout: 20m
steps:
  - name: unit tests
    command: |
      set -e
      go test ./...
    environment: {A: b}
    timeout: 5m
  - command: >-
      echo a
      b
`

func parse(t *testing.T, src string) *Spec {
	t.Helper()
	s, ds := Parse(Dir+"test.yml", []byte(src), Limits{})
	require.NotNil(t, s, "%v", ds)
	return s
}

func codes(ds []Diagnostic) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.Code)
	}
	return out
}

func TestParseFull(t *testing.T) {
	t.Parallel()
	s, ds := Parse(Dir+"all.yml", []byte(full), Limits{})
	require.Empty(t, ds)
	require.Equal(t, &Spec{
		Name: "Everything", File: Dir + "all.yml", Engine: Microvm, Image: "nixos",
		When: []Condition{
			{
				Event: []string{"push", "pull_request"}, Branch: []string{"main", "release-*", "!release-0"}, Tag: []string{"v*"},
				Types: []string{"opened", "merged"}, Paths: []string{"src/**", "!**/*.md"},
			},
			{Event: []string{"schedule"}, Schedule: []Schedule{{"H 2 * * *", "Europe/Paris"}, {"@daily", "UTC"}}},
		},
		Dependencies: Dependencies{Packages: []string{"go", "unstable#zig", "github:x/y"}},
		Microvm: &MicrovmSpec{
			Registry:     []Env{{"mine", "github:x/y"}},
			Substituters: []Env{{"https://cache.example", "cache.example-1:abc="}},
			Services: json.RawMessage(`{"postgresql":{"enable":true,"port":5432,"version":"16","note":null,` +
				`"list":[1.50,"a\u003cb"]}}`),
			Virtualisation: json.RawMessage(`{"docker":{"enable":false}}`),
		},
		RunsOn: []string{"linux", "gpu"}, Clone: Clone{Depth: 50, LFS: true},
		Environment: []Env{{"GOFLAGS", "-mod=readonly"}, {"CGO_ENABLED", "0"}}, Audience: "sts.amazonaws.com",
		Cache: []Cache{{
			Key: "go", Paths: []string{"~/.cache/go-build", "~/go/pkg/mod"}, Hash: []string{"go.sum"},
			Fallback: true, CompressionLevel: 3, When: CacheAlways,
		}},
		Timeout: 20 * time.Minute,
		Steps: []Step{
			{Name: "unit tests", Command: "set -e\ngo test ./...\n", Environment: []Env{{"A", "b"}}, Timeout: 5 * time.Minute},
			{Name: "echo a b", Command: "echo a b"},
		},
	}, s)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := parse(t, "steps: [{command: make}]\n")
	require.Equal(t, &Spec{
		Name: "test", File: Dir + "test.yml", Engine: Sandbox, Clone: Clone{Depth: 1, Submodules: true, Tags: true},
		Steps: []Step{{Name: "make", Command: "make"}},
	}, s)
	require.Equal(t, HostImage, parse(t, "image: host\nsteps: [{command: make}]\n").Image)
}

func TestNixeryDependenciesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := parse(t, "engine: nixery\ndependencies:\n  nixpkgs: [go, git]\n  a/b: hello\n"+
		"  git+https://x.example/y: [z]\nsteps: [{command: a}]\n")
	require.Equal(t, Dependencies{Registries: []Registry{
		{"nixpkgs", []string{"go", "git"}}, {"a/b", []string{"hello"}}, {"git+https://x.example/y", []string{"z"}},
	}}, s.Dependencies)
}

func TestSpecSurvivesJSON(t *testing.T) {
	t.Parallel()
	for _, src := range []string{w0, full, "steps: [{command: make}]\n"} {
		s := parse(t, src)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var back Spec
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, s, &back)
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
	}
}

func TestB017PlainWordsStayText(t *testing.T) {
	t.Parallel()
	s := parse(t, "when: [{event: push, branch: [on, no]}]\nengine: sandbox\n"+
		"environment: {CONFIRM: yes, COUNTRY: NO, LIGHT: off}\nsteps: [{command: 'echo $CONFIRM'}]\n")
	require.Equal(t, []string{"on", "no"}, s.When[0].Branch)
	require.Equal(t, []Env{{"CONFIRM", "yes"}, {"COUNTRY", "NO"}, {"LIGHT", "off"}}, s.Environment)
	_, ds := Parse("x.yml", []byte("on: push\nsteps: [{command: a}]\n"), Limits{})
	require.Len(t, ds, 1)
	require.Equal(t, codeKey, ds[0].Code)
	require.Equal(t, 1, ds[0].Line)
	require.Contains(t, ds[0].Message, `"when"`)
}

func TestB018NumbersKeepTheirText(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"V": "1.10", "MODE": "0755", "BIG": "12345678901234567890", "EXP": "1e3", "T": "12:30", "D": "2026-01-02",
		"HEX": "0x1F", "O": "0o17", "U": "1_000", "INF": ".inf", "NAN": ".nan", "B": "True", "P": "+1", "DOT": "1.",
		"VER": "v1.2.3", "LONG": "0.1000000000000000055511151231257827",
	}
	for key, want := range values {
		for _, src := range []string{
			"environment: {" + key + ": " + want + "}\nsteps: [{command: env}]\n",
			"environment:\n  " + key + ": " + want + "   # why\nsteps: [{command: env}]\n",
		} {
			require.Equal(t, []Env{{key, want}}, parse(t, src).Environment)
		}
	}
	_, ds := Parse("x.yml", []byte("environment: {NUL: ~}\nsteps: [{command: env}]\n"), Limits{})
	require.Equal(t, []string{codeEnv}, codes(ds))
}

func TestB020HonestAnchorsWork(t *testing.T) {
	t.Parallel()
	s := parse(t, "environment: &e {A: \"1\", B: \"2\"}\nsteps:\n  - {command: a, environment: *e}\n  - command: b\n    environment: {<<: *e, B: \"3\"}\n"+
		"  - command: c\n    environment:\n      C: \"4\"\n      <<: [{A: \"5\", D: \"6\"}, *e]\n")
	require.Equal(t, []Env{{"A", "1"}, {"B", "2"}}, s.Steps[0].Environment)
	require.Equal(t, []Env{{"B", "3"}, {"A", "1"}}, s.Steps[1].Environment, "what a mapping says itself wins")
	require.Equal(t, []Env{{"C", "4"}, {"A", "5"}, {"D", "6"}, {"B", "2"}}, s.Steps[2].Environment, "the first of several wins")

	s = parse(t, "steps:\n  - &s {command: a}\n  - *s\n")
	require.Equal(t, s.Steps[0], s.Steps[1])
	require.Equal(t, "b", parse(t, "steps: [{command: a, environment: {A: &x b, B: *x}}]\n").Steps[0].Environment[1].Value)

	var shared strings.Builder
	shared.WriteString("cache:\n  - {key: k0, paths: &l [" + strings.Repeat("a/b, ", 399) + "b]}\n")
	for i := range 29 {
		fmt.Fprintf(&shared, "  - {key: k%d, paths: *l}\n", i+1)
	}
	s = parse(t, shared.String()+"steps: [{command: a}]\n")
	require.Len(t, s.Cache, 30)
	require.Len(t, s.Cache[29].Paths, 400)

	for src, want := range map[string]string{
		"steps: [{command: *a}]\n":                                     codeAnchor,
		"environment: {A: *b, B: &b c}\nsteps: [{command: a}]\n":       codeAnchor,
		"steps:\n  - command: a\n    environment: {<<: b}\n":           codeMerge,
		"environment: {<<: {A: b}, <<: {C: d}}\nsteps: [{command: a}]": codeTwice,
	} {
		s, ds := Parse("x.yml", []byte(src), Limits{})
		require.Nil(t, s, src)
		require.Equal(t, []string{want}, codes(ds), src)
	}
}

// B-019: what aliases stand for is counted, and never written out.
func TestB019AliasBombsAreSmall(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	for name, src := range map[string]string{
		"nested": bomb + "steps: *i\n", "self": "a: &a [*a]\nsteps: [{command: a}]\n",
		"self in a mapping": "steps: &s [{command: a, environment: {A: *s}}]\n",
		"merged":            "environment: &e {<<: *e}\nsteps: [{command: a}]\n",
		"merge bomb": "a: &a {" + strings.Repeat("k: v, ", 1) + "}\n" + strings.Repeat("b: {<<: ["+strings.Repeat("*a,", 900)+"*a]}\n", 1) +
			strings.Repeat("c: ["+strings.Repeat("*a,", 9000)+"]\n", 1) + "steps: [{command: a}]\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, ds := Parse("x.yml", []byte(src), Limits{})
		runtime.ReadMemStats(&after)
		require.Nil(t, s, name)
		require.True(t, slices.Contains(codes(ds), codeLimit) || slices.Contains(codes(ds), codeAnchor), "%s: %v", name, ds)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50<<20), name)
	}
}

func TestB022DuplicateKeysNameBothLines(t *testing.T) {
	t.Parallel()
	s, ds := Parse("x.yml", []byte(w0+"steps: [{command: b}]\n"), Limits{})
	require.Nil(t, s)
	require.Equal(t, []string{codeTwice}, codes(ds))
	require.Equal(t, 4, ds[0].Line)
	require.Contains(t, ds[0].Message, "line 3")
}

func TestB026TabIsNamedAndMarkupIsData(t *testing.T) {
	t.Parallel()
	s, ds := Parse("oops.yml", []byte("when:\n  - event: [push]\n\tbranch: main\n"), Limits{})
	require.Nil(t, s)
	require.Equal(t, 3, ds[0].Line)
	require.Contains(t, ds[0].Message, "tab")
	_, ds = Parse("x.yml", []byte(`steps: "<img src=x onerror=alert(1)>"`), Limits{})
	require.Equal(t, []string{codeType}, codes(ds))
}

func TestTabsInsideCommandsAreFine(t *testing.T) {
	t.Parallel()
	s := parse(t, "steps:\n  - command: |\n      cat <<E\n      \ta\n      E\n\n      b\tc\n  - command: \"a\\tb\"\t# c\n")
	require.Equal(t, "cat <<E\n\ta\nE\n\nb\tc\n", s.Steps[0].Command)
	require.Equal(t, "a\tb", s.Steps[1].Command)
}

// TestTextsOfSeveralLines holds commands to the text that the YAML specification gives them.
func TestTextsOfSeveralLines(t *testing.T) {
	t.Parallel()
	const head, tail = "steps:\n  - name: x\n    command: ", "\n    environment: {A: b}\n"
	for src, want := range map[string]string{
		"|\n      a\n        b\n\n      # c\n      d\n":       "a\n  b\n\n# c\nd\n",
		"|-\n      a\n      b\n\n":                            "a\nb",
		"|+\n      a\n\n":                                     "a\n\n\n",
		">\n      a\n      b\n\n      c\n        d\n":         "a b\nc\n  d\n",
		"|2\n        a\n      b\n":                            "  a\nb\n",
		"|\n      a\n      \tb\n":                             "a\n\tb\n",
		"go test\n      ./...\n      -v":                      "go test ./... -v",
		"\"a\n      b\n\n      c\"":                           "a b\nc",
		"'it''s\n      b'":                                    "it's b",
		"a\n        b\n      c\n      d":                      "a b c d",
		"a\n        b\n      ---c\n        d\n      'e'":      "a b ---c d 'e'",
		"a\n\n      b # c":                                    "a\nb",
		"a # not this":                                        "a",
		"a#b":                                                 "a#b",
		"\"a # b\"":                                           "a # b",
		"|\n      a\n\n\n      --- x\n      a: |\n       c\n": "a\n\n\n--- x\na: |\n c\n",
	} {
		s, ds := Parse("x.yml", []byte(head+src+tail), Limits{})
		require.NotNil(t, s, "%q: %v", src, ds)
		require.Equal(t, want, s.Steps[0].Command, "%q", src)
		require.Equal(t, []Env{{"A", "b"}}, s.Steps[0].Environment)
	}
	for src, code := range map[string]string{
		"|\n      \ta\n      # b": codeTab,
		">-\n\n      \ta":         codeTab,
	} {
		s, ds := Parse("x.yml", []byte(head+src+tail), Limits{})
		require.Nil(t, s, "%q", src)
		require.Equal(t, []string{code}, codes(ds), "%q", src)
	}
}

func TestB032OddEnvironmentsAreErrors(t *testing.T) {
	t.Parallel()
	for _, src := range []string{
		"environment: {A: }", "environment: {B: [1,2]}", "environment: {C: {x: y}}", `environment: {"": z}`,
		`environment: {"D=E": f}`, `environment: {"G H": i}`, "environment: A=1", "environment: [A]", "environment:",
		"steps: null", "steps: [null]", "steps: [{command: 5}]", "steps: {}", "steps: [[]]", "steps: [{command: {}}]",
	} {
		if !strings.HasPrefix(src, "steps") {
			src += "\nsteps: [{command: a}]"
		}
		s, ds := Parse("x.yml", []byte(src+"\n"), Limits{})
		require.Nil(t, s, src)
		require.NotEmpty(t, ds, src)
	}
	s := parse(t, "environment: {\"PATH\": \"\", Path: x}\nsteps: [{command: a}]\n")
	require.Equal(t, []Env{{"PATH", ""}, {"Path", "x"}}, s.Environment)
}

func TestB034Documents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src  string
		want string
	}{
		"leading":       {"---\n" + w0, ""},
		"two":           {w0 + "---\nsteps: [{command: b}]\n", codeDocuments},
		"trailing dots": {w0 + "...\n", ""},
		"empty second":  {w0 + "---\n", ""},
		"directive":     {"%YAML 1.1\n---\n" + w0, ""},
		"tag directive": {"%TAG ! tag:x,2000:\n---\n" + w0, codeTag},
		"comments":      {"# a\n# b\n", codeEmpty},
		"empty":         {"", codeEmpty},
		"blank":         {"\n\n  \n", codeEmpty},
		"bom":           {"\ufeff" + w0, ""},
		"crlf":          {strings.ReplaceAll(w0, "\n", "\r\n"), ""},
		"no newline":    {strings.TrimSuffix(w0, "\n"), ""},
		"20 MB":         {strings.Repeat("a: b\n", 4<<20), codeLimit},
		"deep":          {"steps: " + strings.Repeat("[", 10_000), codeLimit},
		"deep closed":   {"steps: " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), codeLimit},
		"deep block":    {strings.Repeat("- ", 10_000) + "a", codeLimit},
		"deep maps":     {strings.Repeat("{a: ", 10_000), codeLimit},
		"deep keys":     {strings.Repeat("? ", 10_000), codeLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ds := Parse("x.yml", []byte(c.src), Limits{})
			if c.want == "" {
				require.Empty(t, ds)
				require.Equal(t, "hi", s.Steps[0].Name)
				return
			}
			require.Nil(t, s)
			require.Contains(t, codes(ds), c.want)
		})
	}
}

func TestCRLFCommandsHaveNoCarriageReturns(t *testing.T) {
	t.Parallel()
	s := parse(t, "steps:\r\n  - command: |\r\n      a\r\n      b\r\n")
	require.Equal(t, "a\nb\n", s.Steps[0].Command)
}

func TestAllProblemsAreTold(t *testing.T) {
	t.Parallel()
	_, ds := Parse("x.yml", []byte("engine: nixry\nzebra: 1\ntimeout: 5\nsteps:\n  - {comand: a}\n  - {command: []}\n"), Limits{})
	require.Equal(t, []string{codeEngine, codeKey, codeValue, codeKey, codeType}, codes(ds))
}

func TestDiagnosticsAreBounded(t *testing.T) {
	t.Parallel()
	src := "steps:\n" + strings.Repeat("  - {x: y}\n", 90)
	s, ds := Parse("x.yml", []byte(src), Limits{Diagnostics: 10})
	require.Nil(t, s)
	require.Len(t, ds, 11)
	require.Contains(t, ds[10].Message, "170 more problems")
	// A file that is full of warnings and then wrong is still wrong.
	var b strings.Builder
	b.WriteString("when:\n" + strings.Repeat("  - event: push\n", 20) + "steps: 5\n")
	s, ds = Parse("x.yml", []byte(b.String()), Limits{Diagnostics: 10})
	require.Nil(t, s)
	require.True(t, HasErrors(ds))
}

func TestLimitsNameTheBound(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"steps:\n" + strings.Repeat("  - command: a\n", 101):                                          "100",
		"when:\n" + strings.Repeat("  - {event: push, branch: a}\n", 101) + "steps: [{command: a}]\n": "100",
		"when: [{event: push, branch: [" + strings.Repeat("a,", 101) + "]}]\nsteps: [{command: a}]\n": "100",
		"steps: [{command: " + strings.Repeat("a", 121<<10) + "}]\n":                                  "122880",
		"environment:\n" + manyKeys(501) + "steps: [{command: a}]\n":                                  "500",
		manyKeys(1001): "1000",
		"a:" + strings.Repeat("\n", 200) + "steps: 1\n":                                "blank",
		"dependencies: [" + strings.Repeat("a, ", 20_001) + "]\nsteps: [{command: a}]": "values",
	} {
		s, ds := Parse("x.yml", []byte(src), Limits{})
		require.Nil(t, s)
		require.Contains(t, codes(ds), codeLimit, src[:20])
		found := false
		for _, d := range ds {
			found = found || d.Code == codeLimit && strings.Contains(d.Message, want)
		}
		require.True(t, found, "%s: %v", want, ds[0])
	}
	// Patterns are counted over the whole file.
	src := "when:\n" + strings.Repeat("  - {event: push, branch: [a, b, c, d]}\n", 26) + "steps: [{command: a}]\n"
	s, ds := Parse("x.yml", []byte(src), Limits{})
	require.Nil(t, s)
	require.Equal(t, []string{codeLimit}, codes(ds))
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("  K" + strings.Repeat("x", i%3) + time.Duration(i).String() + ": a\n")
	}
	return b.String()
}

func TestRenderPointsAtTheKey(t *testing.T) {
	t.Parallel()
	src := "when: [{event: push, branch: main}]\nsteps:\n  - name: unit\n    comand: go test ./...\n"
	_, ds := Parse("test.yml", []byte(src), Limits{})
	require.Len(t, ds, 1)
	require.Equal(t, `error[E-WF-KEY]: test.yml:4:5: unknown key "comand" in step 1; did you mean "command"?; fix: rename it to command`, ds[0].String())
	require.Equal(t, `error[E-WF-KEY]: unknown key "comand" in step 1; did you mean "command"?
  ┌─ test.yml:4:5
3 │   - name: unit
4 │     comand: go test ./...
  │     ^^^^^^
  = fix: rename it to command
  = more: spindle explain E-WF-KEY
`, ds[0].Render([]byte(src)))
}

func TestRenderIsSafe(t *testing.T) {
	t.Parallel()
	src := "\"\x1b[31m\u202e" + strings.Repeat("é", 300) + "\": x"
	d := Diagnostic{File: "x.yml", Line: 1, Column: 200, Severity: Error, Code: codeKey, Message: "m"}
	out := d.Render([]byte(src))
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\u202e")
	for _, line := range strings.Split(out, "\n") {
		require.LessOrEqual(t, len([]rune(line)), excerptWidth+10)
	}
	for _, at := range []pos{{}, {-1, -1}, {1, 0}, {1, 10_000}, {99, 1}, {1, 312}} {
		d.Line, d.Column = at.line, at.column
		require.NotEmpty(t, d.Render([]byte(src)))
		require.NotEmpty(t, d.Render(nil))
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	words := []string{"command", "environment", "name", "timeout"}
	for s, want := range map[string]string{
		"comand": "command", "commnad": "command", "enviroment": "environment", "env": "environment", "nmae": "name",
		"Timeout": "timeout", "zebra": "", "": "", "x": "", strings.Repeat("a", 100): "",
	} {
		require.Equal(t, want, nearest(s, words), s)
	}
}
