package workflow

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReference parses every block of the reference: what it shows is accepted without a warning, and what
// it shows as refused is refused with the code it names.
func TestReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workflow.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 10)
	for _, b := range blocks {
		s, ds := Parse(Dir+"example.yml", []byte(b[2]), Limits{})
		if code, refused := strings.CutPrefix(b[1], "yaml refused "); refused {
			require.Nil(t, s, b[2])
			require.Contains(t, codes(ds), code)
			continue
		}
		require.Equal(t, "yaml", b[1], b[2])
		require.NotNil(t, s, "%s\n%v", b[2], ds)
		require.Empty(t, ds, b[2])
	}
}

// TestReferenceIsComplete holds the reference to the code: every diagnostic's code and every key is on it.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workflow.md")
	require.NoError(t, err)
	source, err := os.ReadFile("codes.go")
	require.NoError(t, err)
	found := regexp.MustCompile(`"([EW]-WF-[A-Z]+)"`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, found)
	for _, c := range found {
		require.Contains(t, string(page), "| `"+c[1]+"` |")
	}
	for _, k := range allKeys() {
		require.Contains(t, string(page), "`"+k.name+"`")
	}
	for _, c := range regexp.MustCompile("`([EW]-WF-[A-Z]+)`").FindAllStringSubmatch(string(page), -1) {
		require.Contains(t, string(source), `"`+c[1]+`"`, "the page names a code that does not exist")
	}
}

// allKeys are the keys of all tables.
func allKeys() []key {
	return slices.Concat(workflowKeys(), conditionKeys(), scheduleKeys(), cloneKeys(), cacheKeys(), stepKeys(), concurrencyKeys(),
		approvalKeys(), inputKeys(), retryKeys(), serviceKeys(), artifactKeys(), reportKeys())
}
