package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// levels gives every room its level. A room imports lower levels only.
func levels() map[string]int {
	return map[string]int{
		"lexicons": 0, "pipeline": 0, "obs": 0,
		"workflow": 1, "rbac": 1,
		"store": 2, "logs": 2, "blobs": 2, "secrets": 2, "identity": 2, "knot": 2, "engines": 2,
		"ingest": 3, "backfill": 3, "trigger": 3, "queue": 3, "runner": 3, "feed": 3,
		"xrpc": 4, "web": 4, "fleet": 4, "desk": 4,
		"daemon": 5, "cmd": 6, "bench": 7,
	}
}

type listed struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles", "spindle/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func room(path string) string {
	r, _, _ := strings.Cut(strings.TrimPrefix(path, "spindle/"), "/")
	return r
}

// TestImportsGoDown proves that rooms import lower levels only, and rooms of one level not each other.
func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	level := levels()
	for _, p := range packages(t) {
		from := room(p.ImportPath)
		for _, i := range p.Imports {
			to := room(i)
			if !strings.HasPrefix(i, "spindle/") || to == from || to == "internal" {
				continue
			}
			switch from {
			case "internal":
				t.Errorf("%s imports %s: the own corner imports no room", p.ImportPath, i)
			case "devnet":
				// devnet/world is the network with a spindle on it, for demo, tests and benchmarks.
				if p.ImportPath != "spindle/devnet/world" && to != "lexicons" {
					t.Errorf("%s imports %s: the network beside the server knows only its words", p.ImportPath, i)
				}
			default:
				if to == "devnet" {
					if level[from] < 6 {
						t.Errorf("%s imports %s: the server must not know the network that it is tried on", p.ImportPath, i)
					}
					continue
				}
				_, known := level[from]
				if !known {
					t.Errorf("%s is in no room of docs/architecture.md", p.ImportPath)
					continue
				}
				if level[to] > level[from] || level[to] == level[from] && !(from == "knot" && to == "identity") {
					t.Errorf("%s (level %d) imports %s (level %d)", p.ImportPath, level[from], i, level[to])
				}
			}
		}
	}
}

// TestEveryRoomSaysWhatItOwns proves that each package has a doc.go, or is a command.
func TestEveryRoomSaysWhatItOwns(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if room(p.ImportPath) == "cmd" || room(p.ImportPath) == "bench" || strings.Contains(p.ImportPath, "/internal/") && room(p.ImportPath) == "lexicons" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil && len(p.GoFiles) == 1 {
			b, err = os.ReadFile(filepath.Join(p.Dir, p.GoFiles[0]))
		}
		if err != nil || !bytes.Contains(b, []byte("// Package ")) {
			t.Errorf("%s has no doc.go that says what it owns", p.ImportPath)
		}
	}
}

// maxLines is where a file of our own is too long. Generated files and tests do not count.
const maxLines = 500

// TestFilesStaySmall proves the habit of small files.
func TestFilesStaySmall(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "orgtangled" || d.Name() == "shtangled") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(b, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; split it by topic (at most %d)", path, n, maxLines)
		}
		return nil
	})
	require.NoError(t, err)
}
