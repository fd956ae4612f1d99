package house

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the blocks of docs/architecture.md that follow from the code")

// edges are the rooms that each room imports, tests apart. A corner of a room that stands for itself (internal/clock,
// devnet/world) is one of its own.
func edges(t *testing.T) map[string][]string {
	t.Helper()
	sets := map[string]map[string]bool{}
	for _, p := range packages(t) {
		from := node(p.ImportPath)
		if sets[from] == nil {
			sets[from] = map[string]bool{}
		}
		for _, i := range p.Imports {
			if to := node(i); strings.HasPrefix(i, "spindle/") && to != from {
				sets[from][to] = true
			}
		}
	}
	out := map[string][]string{}
	for from, to := range sets {
		out[from] = slices.Sorted(maps.Keys(to))
	}
	return out
}

func node(path string) string {
	p := strings.Split(strings.TrimPrefix(path, "spindle/"), "/")
	if len(p) > 1 && (p[0] == "internal" || p[0] == "cmd" || p[0] == "devnet" && p[1] == "world") {
		return p[0] + "/" + p[1]
	}
	return p[0]
}

// graph is the block for the page: a line for each room, from level 0 up.
func graph(t *testing.T) string {
	t.Helper()
	level := levels()
	at := func(n string) int {
		r, _, _ := strings.Cut(n, "/")
		l, ok := level[r]
		switch {
		case r == "internal":
			return -1
		case n == "devnet/world":
			return 6
		case !ok:
			return 0
		}
		return l
	}
	all := edges(t)
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if d := at(a) - at(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%-18s", n)
		if to := all[n]; len(to) > 0 {
			fmt.Fprintf(&b, " -> %s", strings.Join(to, " "))
		}
		b.WriteString("\n")
	}
	return trimLines(b.String())
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// TestNoCycles proves that no room reaches itself.
func TestNoCycles(t *testing.T) {
	t.Parallel()
	all := edges(t)
	var walk func(path []string)
	walk = func(path []string) {
		for _, to := range all[path[len(path)-1]] {
			if slices.Contains(path, to) {
				t.Fatalf("rooms import each other: %s", strings.Join(append(path, to), " -> "))
			}
			walk(append(slices.Clone(path), to))
		}
	}
	for from := range all {
		walk([]string{from})
	}
}

// TestGraphIsFresh compares the import graph on the page with that of the code.
func TestGraphIsFresh(t *testing.T) {
	want := graph(t)
	if have := block(t, "graph", want); have != want {
		t.Errorf("the import graph of docs/architecture.md is stale: run `go test ./internal/house -update`, or put this there:\n%s", want)
	}
}

// block is the text between the markers on the architecture page; with -update it is replaced by fresh first.
func block(t *testing.T, name, fresh string) string {
	t.Helper()
	const file = "docs/architecture.md"
	begin, end := "<!-- "+name+" -->\n```text\n", "```\n<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(page(t, file), begin)
	require.True(t, ok, "%s has no block %s", file, name)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the block %s of %s does not end", name, file)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(before+begin+fresh+end+after), 0o644))
		return fresh
	}
	return have
}

// listedFiles is how many of the largest files the page names.
const listedFiles = 10

type sized struct {
	path  string
	lines int
}

// largest are the largest files of our own: no tests, nothing generated.
func largest(t *testing.T) []sized {
	t.Helper()
	var all []sized
	for _, p := range packages(t) {
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if bytes.Contains(b[:min(len(b), 300)], []byte("DO NOT EDIT")) {
				continue
			}
			path := strings.TrimPrefix(p.ImportPath, "spindle/") + "/" + f
			all = append(all, sized{path, bytes.Count(b, []byte("\n"))})
		}
	}
	slices.SortFunc(all, func(a, b sized) int {
		if a.lines != b.lines {
			return b.lines - a.lines
		}
		return strings.Compare(a.path, b.path)
	})
	return all
}

// TestLargestFilesAreNamed compares the list on the page with the tree. Counts may be a tenth off, so that not every change
// to a large file changes the page.
func TestLargestFilesAreNamed(t *testing.T) {
	all := largest(t)
	var fresh strings.Builder
	for _, f := range all[:listedFiles] {
		fmt.Fprintf(&fresh, "%4d %s\n", f.lines, f.path)
	}
	now := map[string]int{}
	for _, f := range all {
		now[f.path] = f.lines
	}
	least := all[0].lines
	named := map[string]bool{}
	for line := range strings.Lines(block(t, "largest", fresh.String())) {
		count, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		named[path] = true
		least = min(least, n)
		if off := now[path] - n; off*10 > n || off*10 < -n {
			t.Errorf("%s has %d lines, docs/architecture.md says %d: run `go test ./internal/house -update`", path, now[path], n)
		}
	}
	require.Len(t, named, listedFiles)
	for _, f := range all {
		if !named[f.path] && f.lines*10 > least*11 {
			t.Errorf("%s has %d lines and is not among the largest files of docs/architecture.md: run `go test ./internal/house -update`", f.path, f.lines)
		}
	}
}

// TestPathsAreThere proves that the files and folders that the architecture page names exist.
func TestPathsAreThere(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/architecture.md")
	tops := map[string]bool{}
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			tops[e.Name()] = true
		}
	}
	seen := 0
	for _, word := range strings.Split(text, "`") {
		top, _, inside := strings.Cut(word, "/")
		if !inside || !tops[top] || strings.ContainsAny(word, " \n{*<") {
			continue
		}
		seen++
		if _, err := fs.Stat(os.DirFS(root), strings.TrimSuffix(word, "/")); err != nil {
			t.Errorf("docs/architecture.md names %s, which is not there", word)
		}
	}
	require.Greater(t, seen, 20)
}
