package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/workflow"
)

// TestExplainedCodes runs the binary: what the end of every diagnostic says to type must work.
func TestExplainedCodes(t *testing.T) {
	t.Parallel()
	code, list := exit(t, nil, "explain")
	require.Equal(t, exitOK, code)
	for _, e := range workflow.Explanations() {
		require.Contains(t, list, e.Code+" ")
	}
	_, ds := workflow.Parse("x.yml", []byte("stepz: 1\n"), workflow.Limits{})
	said := ds[0].Render(nil)
	_, command, ok := strings.Cut(said, "more: spindle ")
	require.True(t, ok, said)
	code, out := exit(t, nil, strings.Fields(command)...)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "E-WF-KEY: an unknown key\n")
	require.Contains(t, out, "wrong: .tangled/workflows/test.yml\n\n    steps:\n      - comand: make test\n")
	require.Contains(t, out, "right: .tangled/workflows/test.yml\n\n    steps:\n      - command: make test\n")

	code, out = exit(t, nil, "explain", "E-WF-KEYS")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "did you mean E-WF-KEY?")
	code, out = exit(t, nil, "explain", "E-"+strings.Repeat("X", 500))
	require.Equal(t, exitUsage, code)
	require.Less(t, len(out), 200)
	code, _ = exit(t, nil, "explain", "tab", "key")
	require.Equal(t, exitUsage, code)
	// A bell in a wrong example must not ring.
	_, out = exit(t, nil, "explain", "encoding")
	require.NotContains(t, out, "\a")
}
