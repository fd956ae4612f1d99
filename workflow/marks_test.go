package workflow

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestValuesOfAFile tells files that hold too much from those that are only long.
func TestValuesOfAFile(t *testing.T) {
	t.Parallel()
	const head = "steps:\n  - command: a\nenvironment:\n"
	long := strings.Repeat("[1, {a: b}],", 4000)
	for name, c := range map[string]struct {
		src  string
		want string // in the diagnostic; empty when the file is good
	}{
		"text of a block":         {head + "  A: |\n    " + long + "\n", ""},
		"text of a folded block":  {head + "  A: >-\n    " + strings.ReplaceAll(long, "],", "],\n    ") + "\n", ""},
		"quotes closed on a line": {head + "  A: \"it's\"\n  B: |\n    " + long + "\n", "5000 values"},
		"comments":                {head + "  A: b\n" + strings.Repeat("  # a, b, c, d, e, f\n", 5000), ""},
		"text in quotes":          {head + "  A: '" + long + "'\n", "5000 values"},
		"many keys":               {head + strings.Repeat("? a\n", 21_000), "5000 values"},
		"just too many":           {"matrix: {a: [" + strings.Repeat("a, ", 5001) + "]}\nsteps: [{command: a}]\n", "5000 values"},
		// What looks like a block stands in quotes, so that the brackets after it are none of its text.
		"a block that is none": {"environment: {A: \"\n b: |\n  \", C: [" + long + "]}\n", "5000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ds := Parse("f.yml", []byte(c.src), Limits{ValueBytes: 1 << 20})
			if c.want == "" {
				require.NotNil(t, s, "%v", ds)
				return
			}
			require.Nil(t, s)
			require.Len(t, ds, 1)
			require.Equal(t, "E-WF-LIMIT", ds[0].Code)
			require.Contains(t, ds[0].Message, c.want)
			require.Contains(t, ds[0].Fix, "command: |")
		})
	}
}
