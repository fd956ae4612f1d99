package workflow

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGoldenDiagnostics reads testdata/bad/*.yml, each of which is wrong in one way, and compares the
// diagnostics with the file beside it: code, line, column, sentence and fix.
func TestGoldenDiagnostics(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 40)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			name := filepath.Base(file)
			spec, ds := Parse(name, src, DefaultLimits())
			require.NotEmpty(t, ds)
			require.Equal(t, HasErrors(ds), spec == nil)
			var b strings.Builder
			for _, d := range ds {
				require.NotZero(t, d.Line, d.String())
				require.NotZero(t, d.Column, d.String())
				require.NotEmpty(t, d.Fix, d.String())
				require.Equal(t, name, d.File)
				first, _, _ := strings.Cut(d.Message, "\n")
				require.LessOrEqual(t, len(first), 300)
				b.WriteString(d.String() + "\n")
			}
			b.WriteString("\n" + ds[0].Render(src))
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
