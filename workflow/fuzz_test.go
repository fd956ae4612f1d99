package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

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
	for _, file := range files {
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
		}
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
