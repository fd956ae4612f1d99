package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

// FuzzParse holds Parse to its promises on any bytes: no panic, a Spec or an error, bounded and printable
// diagnostics that lie in the file, and a Spec that survives JSON.
func FuzzParse(f *testing.F) {
	for _, s := range []string{w0, full, "", "a", "- a", "a: |\n\n\n x", "%YAML 1.2\n---\na: b", "? a\n: b", "a: !!binary x", "\"\\x00\": a", "a: >+1\n  b", "{a: b, c: [d, {e: f}]}", "steps: [{command: *a}]"} {
		f.Add([]byte(s))
	}
	files, err := filepath.Glob("testdata/bad/*.yml")
	require.NoError(f, err)
	good, err := filepath.Glob("testdata/schema/good/*.yml")
	require.NoError(f, err)
	for _, file := range append(files, good...) {
		src, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, ds := Parse("f.yml", src, Limits{})
		require.Equal(t, HasErrors(ds), s == nil)
		require.LessOrEqual(t, len(ds), DefaultLimits().Diagnostics+1)
		for _, d := range ds {
			require.NotEmpty(t, d.Code)
			require.NotEmpty(t, d.Message)
			require.NotEmpty(t, d.Fix)
			require.NotContains(t, d.String(), "\n")
			require.NotContains(t, d.String(), "\x1b")
			require.NotContains(t, d.Render(src), "\x1b")
			for _, e := range d.Edits {
				require.LessOrEqual(t, 0, e.Start)
				require.LessOrEqual(t, e.Start, e.End)
				require.LessOrEqual(t, e.End, len(src))
			}
		}
		_, _ = Apply(src, ds)
		_ = LSP("file:///f.yml", src, ds)
		plan := Compile(Input{Files: []File{{Path: Dir + "f.yml", Data: src}}, All: true, Partial: true, Capabilities: &Capabilities{}})
		require.NotEmpty(t, plan.Workflows)
		if s == nil {
			return
		}
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var back Spec
		require.NoError(t, json.Unmarshal(text, &back))
		again, err := json.Marshal(&back)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
		require.NotEmpty(t, s.Steps)
		require.NotEmpty(t, s.Engine)
		_, _ = s.Match(pipeline.Trigger{Kind: pipeline.Push, Ref: "refs/heads/main"}, "main", Changed{Files: []string{"a/b"}, Known: true})
	})
}

// FuzzMatch holds matching to its promises: no panic, and exactly one of a match and a reason.
func FuzzMatch(f *testing.F) {
	f.Add("main", "refs/heads/main", "src/a.go", "push", "opened")
	f.Add("**/*.md", "refs/tags/v1", "", "pull_request", "")
	f.Add("!x{a,b}[c-d]\\*", "", "é", "schedule", "merged")
	f.Add("{a,{b,c}}*{,d}", "refs/heads/{", "[", "manual", "x")
	f.Fuzz(func(t *testing.T, pattern, ref, changed, kind, action string) {
		src, err := json.Marshal(map[string]any{
			"when": []any{
				map[string]any{"event": []string{"push"}, "branch": pattern, "tag": pattern},
				map[string]any{"event": "pull_request", "branch": "**", "paths": pattern},
			},
			"steps": []any{map[string]any{"command": "a"}},
		})
		require.NoError(t, err)
		s, _ := Parse("f.yml", src, Limits{})
		if s == nil {
			return
		}
		ok, why := s.Match(pipeline.Trigger{
			Kind: pipeline.Kind(kind), Ref: ref, Pull: &pipeline.Pull{TargetBranch: ref, Action: action},
		}, "main", Changed{Files: []string{changed}, Known: true})
		require.Equal(t, ok, why == "")
		require.NotContains(t, why, "\n")
		require.Less(t, len(why), 2000)
	})
}

// FuzzExpr holds expressions and templates to their promises on any text: no panic, places that lie in the text, and a
// value for whatever was checked.
func FuzzExpr(f *testing.F) {
	for _, s := range []string{
		"", "true", "trigger.branch == 'main' && !failure()", "inputs.n in [1, 2.5, -3]", `needs["a.b"].outputs.x != "\""`, "matches(ref, '{a,b}/**')",
		"((((1))))", "a${{ ref }}b", "${{ github.ref }}", "contains(matrix.go, '1') || inputs.dry", "'\u00e9' == \"\x00\"", "!!!!true", "1 < 2 < 3", "a.b.c.d.e.f.g.h.i",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		fault := checkExpr(src, wide())
		_, err := Eval(Expr(src), someFacts())
		if fault == nil {
			require.NoError(t, err)
		} else {
			require.NotEmpty(t, fault.message)
			require.NotEmpty(t, fault.fix)
			require.LessOrEqual(t, 0, fault.at)
			require.LessOrEqual(t, fault.at, fault.end)
			require.LessOrEqual(t, fault.end, max(len(src), 1))
		}
		_, _ = Eval(Expr(src), Facts{})
		if checkTemplate(src, wide()) == nil {
			_, _ = Template(src).Expand(someFacts()) // what comes out may be empty, and is refused then
		}
		_, _ = Template(src).Expand(Facts{})
		s, ds := Parse("f.yml", []byte("steps:\n  - command: a\n    if: "+src+"\nconcurrency: a-"+src+"\n"), Limits{})
		require.Equal(t, HasErrors(ds), s == nil)
	})
}

// FuzzGlob compares one pattern with one name: no panic, an end in time, and exclusions that turn the answer over.
func FuzzGlob(f *testing.F) {
	f.Add("**/*.md", "a/b.md")
	f.Add("{a,{b,c}}*{,d}", "ad")
	f.Add("[!a-c]\\*?", "x*y")
	f.Add("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("[^]-a]", "]")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > DefaultLimits().PatternBytes || len(name) > 4096 || strings.HasPrefix(pattern, "!") || pattern == "" ||
			!doublestar.ValidatePattern(pattern) || alternatives(pattern) > maxAlternatives {
			return
		}
		w := newWork()
		if !w.spend([]string{pattern}, name) {
			return
		}
		begin := time.Now()
		require.Equal(t, covers([]string{pattern}, name), !covers([]string{"!" + pattern}, name))
		require.False(t, covers([]string{pattern, "!" + pattern}, name))
		require.Less(t, time.Since(begin), 20*time.Second)
	})
}
