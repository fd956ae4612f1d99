package workflow

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// said are the codes of everything that Compile says of an example, each once.
func said(e Example) []string {
	p := Compile(e.Input())
	all := p.Diagnostics
	for _, w := range p.Workflows {
		all = append(all, w.Diagnostics...)
	}
	var out []string
	seen := map[string]bool{}
	for _, c := range codes(all) {
		if !seen[c] {
			out = append(out, c)
		}
		seen[c] = true
	}
	return out
}

// TestEveryCodeIsExplained proves that each explanation's wrong example is refused, or warned of, for the reason
// that it explains and for no other, and that the right one is taken without a word.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("codes.go")
	require.NoError(t, err)
	explained := map[string]Explanation{}
	for _, e := range Explanations() {
		require.NotContains(t, explained, e.Code)
		explained[e.Code] = e
	}
	known := regexp.MustCompile(`"([EW]-WF-[A-Z]+)"`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, known, len(explained))
	for _, c := range known {
		e, ok := explained[c[1]]
		require.True(t, ok, c[1])
		require.NotEmpty(t, e.Meaning)
		require.Greater(t, len(e.Why), 40, e.Code)
		require.Equal(t, []string{e.Code}, said(e.Wrong), e.Code)
		require.Empty(t, said(e.Right), e.Code)
		require.Len(t, Compile(e.Right.Input()).Workflows, 1, e.Code)
	}
}

func TestExplainFindsCodes(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"E-WF-KEY": "E-WF-KEY", "e-wf-key": "E-WF-KEY", "key": "E-WF-KEY", " W-WF-FILE ": "W-WF-FILE", "file": "E-WF-FILE",
		"never": "W-WF-NEVER",
	} {
		e, _, ok := Explain(asked)
		require.True(t, ok, asked)
		require.Equal(t, want, e.Code)
	}
	for asked, want := range map[string]string{
		"E-WF-KEX": "E-WF-KEY", "W-WF-NEVR": "W-WF-NEVER", "dialekt": "E-WF-DIALECT", "kex": "E-WF-KEY", "nevr": "W-WF-NEVER",
		"": "", "E-SOMETHING-ELSE": "", strings.Repeat("x", 10_000): "",
	} {
		_, meant, ok := Explain(asked)
		require.False(t, ok, asked)
		require.Equal(t, want, meant, asked)
	}
}

// TestTableOfCodes holds the table of the reference to the explanations, row by row.
func TestTableOfCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workflow.md")
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("| code | meaning |\n|---|---|\n")
	for _, e := range Explanations() {
		b.WriteString("| `" + e.Code + "` | " + e.Meaning + " |\n")
	}
	require.Contains(t, string(page), "\n"+b.String()+"\n")
}
