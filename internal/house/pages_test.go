package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository, seen from this package.
var root = filepath.Join("..", "..")

// pages are the documentation: every Markdown file at the root and in docs, by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, glob := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, glob))
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			name, err := filepath.Rel(root, f)
			require.NoError(t, err)
			out[filepath.ToSlash(name)] = string(b)
		}
	}
	require.Greater(t, len(out), 8)
	return out
}

// page is one of them.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(b)
}

var (
	fence   = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchors are the fragments that a page's headings give, the way git hosts make them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return out
}

// TestLinksResolve proves that what a page links to inside of the repository is there, headings included.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for name, text := range all {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(l[1], "#")
			to := name
			if file != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, l[1])
				continue
			}
			if target, ok := all[to]; anchor != "" && (!ok || !anchors(target)[anchor]) {
				t.Errorf("%s links to %s, and %s has no such heading", name, l[1], to)
			}
		}
	}
}

// TestPagesNameNoMachine keeps paths of somebody's own machine and addresses inside of a private network out
// of the pages: the readers have another machine.
func TestPagesNameNoMachine(t *testing.T) {
	t.Parallel()
	machine := regexp.MustCompile(`(^|[^.\w])/(work|home|root|Users|tmp)/\w|\b(10|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d+\.\d+(\.\d+)?:\d|GOPROXY|GOSUMDB`)
	for name, text := range pages(t) {
		for i, line := range strings.Split(text, "\n") {
			if m := machine.FindString(line); m != "" {
				t.Errorf("%s:%d speaks of one machine: %q", name, i+1, m)
			}
		}
	}
}

// rows are the rows of all tables of a page whose first cell begins with a word in backticks: that word to the cells after it.
func rows(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		name, _, _ := strings.Cut(strings.TrimPrefix(cells[0], "`"), "`")
		out[name] = cells[1:]
	}
	return out
}
