package lexicons_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The committed Go types are what the lexicons give today, no file more and no file less.
func TestGeneratedCodeIsUpToDate(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("skipped: the go command is not in PATH, so nothing can be generated:", err)
	}
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/gen", "-dir", ".", "-out", out)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	for _, pkg := range []string{"orgtangled", "shtangled"} {
		fresh, have := goFiles(t, filepath.Join(out, pkg)), goFiles(t, pkg)
		require.NotEmpty(t, fresh, "the generator wrote nothing")
		delete(have, "doc.go") // the one file that is written by hand
		for name, src := range fresh {
			require.Equal(t, src, have[name], "%s/%s is behind its lexicon: run go generate ./lexicons", pkg, name)
			delete(have, name)
		}
		require.Empty(t, have, "files in %s that no lexicon gives: run go generate ./lexicons", pkg)
	}
}

// goFiles reads the files of a directory, by name.
func goFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(b)
		return err
	})
	require.NoError(t, err)
	return files
}
