package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const mistaken = "# what it is for\nsteps:\n  - name: unit   # of the parser\n    comand: go test ./...\n"

// What is safe to mend is mended, shown, and nothing else is touched; a second time there is nothing to do.
func TestLintFix(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "test.yml")
	require.NoError(t, os.WriteFile(name, []byte(mistaken), 0o640))
	code, out := exit(t, nil, "lint", "--fix", name)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "-    comand: go test ./...\n+    command: go test ./...\n")
	want := strings.Replace(mistaken, "comand", "command", 1)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	list, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, list, 1, "nothing is left beside it")
	code, out = exit(t, nil, "lint", "--fix", name)
	require.Equal(t, 0, code, out)
	require.NotContains(t, out, "mended")
}

// Standard input is mended to standard output.
func TestLintFixStdin(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary(t), "lint", "--fix", "-")
	cmd.Stdin = strings.NewReader(mistaken)
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, strings.Replace(mistaken, "comand", "command", 1), string(out))
}

func TestLintFormatsOfTools(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "test.yml")
	require.NoError(t, os.WriteFile(name, []byte(mistaken), 0o640))
	code, out := exit(t, nil, "lint", "--format", "github", name)
	require.Equal(t, 3, code, out)
	require.Contains(t, out, "::error file="+name+",line=4,col=5,title=E-WF-KEY::")
	cmd := exec.Command(binary(t), "lint", "--format", "lsp", name)
	text, err := cmd.Output()
	require.Error(t, err)
	var files []lspFile
	require.NoError(t, json.Unmarshal(text, &files))
	require.Equal(t, "file://"+name, files[0].URI)
	d := files[0].Diagnostics[0]
	require.Equal(t, lspRange{lspPosition{3, 4}, lspPosition{3, 10}}, d.Range)
	require.Equal(t, []lspEdit{{lspRange{lspPosition{3, 4}, lspPosition{3, 10}}, "command"}}, d.Data)
}
