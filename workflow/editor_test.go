package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApply(t *testing.T) {
	t.Parallel()
	src := []byte("\ufeffstepz:\r\n  - comand: a\r\n")
	_, ds := Parse("x.yml", src, Limits{})
	out, n := Apply(src, ds)
	require.Equal(t, 1, n, "what is below an unknown key is not looked at")
	_, ds = Parse("x.yml", out, Limits{})
	out, n = Apply(out, ds)
	require.Equal(t, 1, n)
	require.Equal(t, "\ufeffsteps:\r\n  - command: a\r\n", string(out))

	_, ds = Parse("x.yml", out, Limits{})
	require.Empty(t, ds)
	twice := []Diagnostic{{Edits: []Edit{{0, 2, "x"}}}, {Edits: []Edit{{1, 3, "y"}}}, {Edits: []Edit{{4, 4, "z"}}}, {Edits: []Edit{{9, 8, ""}}}, {Edits: []Edit{{0, 99, ""}}}}
	out, n = Apply([]byte("abcdef"), twice)
	require.Equal(t, "xcdzef", string(out))
	require.Equal(t, 2, n)
}

// TestEditsHelp applies the edits of every wrong file of the corpus: no edit makes anything worse, and what was mended
// is not told again.
func TestEditsHelp(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.yml")
	require.NoError(t, err)
	more, err := filepath.Glob("testdata/schema/*/*.yml")
	require.NoError(t, err)
	mended := 0
	for _, file := range append(files, more...) {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		_, ds := Parse(file, src, Limits{})
		out, n := Apply(src, ds)
		if n == 0 {
			require.Equal(t, string(src), string(out))
			continue
		}
		mended += n
		_, left := Parse(file, out, Limits{})
		told := map[string]bool{}
		for _, d := range left {
			told[d.Message] = true
		}
		for _, d := range ds {
			if len(d.Edits) > 0 {
				require.False(t, told[d.Message], "%s: %s\n%s", file, d.Message, out)
			}
		}
	}
	require.Greater(t, mended, 15)
}

func TestTabsAreMended(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"steps:\n\t- command: a\n\t  name: b\n":                             "steps:\n  - command: a\n    name: b\n",
		"steps:\n  - command: a\n\tname: b\n":                               "steps:\n  - command: a\n    name: b\n",
		"when:\n\t- event: push\n\t  branch: main\nsteps: [{command: a}]\n": "when:\n  - event: push\n    branch: main\nsteps: [{command: a}]\n",
	} {
		_, ds := Parse("x.yml", []byte(src), Limits{})
		out, n := Apply([]byte(src), ds)
		require.Equal(t, len(ds), n)
		require.Equal(t, want, string(out))
	}
}

func TestLSP(t *testing.T) {
	t.Parallel()
	src := []byte("name: \"\U0001F600\" # ü\nsteps:\n  - {name: 😀, comand: a}\n")
	_, ds := Parse("x.yml", src, Limits{})
	require.Len(t, ds, 1)
	got := LSP("file:///x.yml", src, ds)
	require.Equal(t, LSPRange{LSPPosition{2, 15}, LSPPosition{2, 21}}, got.Diagnostics[0].Range, "an emoji is two units")
	require.Equal(t, []LSPEdit{{LSPRange{LSPPosition{2, 15}, LSPPosition{2, 21}}, "command"}}, got.Diagnostics[0].Data.Edits)
	require.Equal(t, 1, got.Diagnostics[0].Severity)
	text, err := json.Marshal(LSP("file:///x.yml", nil, nil))
	require.NoError(t, err)
	require.Equal(t, `{"uri":"file:///x.yml","diagnostics":[]}`, string(text))
	whole := LSP("file:///x.yml", []byte("a\n"), []Diagnostic{{Severity: Warning, Code: "W", Message: "m"}, {Line: 99, Column: 4, Edits: []Edit{{5, 9, ""}}}})
	require.Equal(t, 2, whole.Diagnostics[0].Severity)
	require.Zero(t, whole.Diagnostics[0].Range)
	require.Empty(t, whole.Diagnostics[1].Data.Edits)
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	got := GitHub([]Diagnostic{
		{File: "a,b:c.yml", Line: 3, Column: 5, Severity: Error, Code: "E-WF-KEY", Message: "100% wrong\n::error::no", Fix: "write it"},
		{Severity: Warning, Code: "W-WF-FILE", Message: "m"},
	})
	require.Equal(t, "::error file=a%2Cb%3Ac.yml,line=3,col=5,title=E-WF-KEY::100%25 wrong%0A::error::no%0Afix: write it\n::warning title=W-WF-FILE::m\n", got)
	require.Equal(t, 2, strings.Count(got, "\n"))
}
