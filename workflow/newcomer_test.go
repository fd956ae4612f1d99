package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesOfFilesAreNoCommands keeps what others call a file out of what people are told to type.
func TestNamesOfFilesAreNoCommands(t *testing.T) {
	t.Parallel()
	src := []byte("on: push\njobs: {a: {}}\n")
	for file, want := range map[string]string{
		Dir + "ci.yml": "--print .tangled/workflows/ci.yml translate", "a;reboot.yml": "--print FILE translate",
		"$(reboot).yml": "--print FILE translate", "--force.yml": "--print FILE translate", "a b.yml": "--print FILE translate",
	} {
		_, ds := Parse(file, src, Limits{})
		require.Len(t, ds, 1)
		require.Contains(t, ds[0].Fix, want)
	}
}

// TestNewcomers reads testdata/newcomer/*.yml, files as people write them who come from another system, and compares
// all that they are told, and what the edits make of the file, with the file beside it.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/newcomer/*.yml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			_, ds := Parse(filepath.Base(file), src, Limits{})
			require.NotEmpty(t, ds)
			var b strings.Builder
			for _, d := range ds {
				b.WriteString(d.Render(src) + "\n")
			}
			if mended, n := Apply(src, ds); n > 0 {
				b.WriteString("--- mended\n" + string(mended))
				_, again := Parse(filepath.Base(file), mended, Limits{})
				if ds[0].Code != codeYAML {
					for _, d := range again {
						require.NotEqual(t, codeYAML, d.Code, "an edit must not break the file")
					}
				}
			}
			golden := strings.TrimSuffix(file, ".yml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}
