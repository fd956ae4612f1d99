package house

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// languages are the kinds of blocks that a page may have. Only sh is run here; yaml belongs to package workflow;
// console is for another machine, or shows a command that does not end, with its output.
var languages = []string{"sh", "console", "yaml", "text", "ini", "json", "go", "caddy", "nginx"}

// cannot is what spindle says where no sandbox can run, as in a container without user namespaces.
const cannot = "sandboxes cannot run on this machine"

// TestBlocksRun runs every sh block of the pages as it stands, with `sh -eu`, in a folder of its own that looks like
// a checkout, and with the binary on the PATH.
func TestBlocksRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the binary and runs the demo: skipped in short mode")
	}
	for _, tool := range []string{"sh", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("this machine has no %s, which the blocks need", tool)
		}
	}
	bin := t.TempDir()
	// With the flags of the README, so that its own build finds everything compiled.
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(bin, "spindle"), "./cmd/spindle")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, text := range pages(t) {
		for i, b := range fence.FindAllStringSubmatch(text, -1) {
			kind, _, _ := strings.Cut(b[1], " ")
			if !slices.Contains(languages, kind) {
				t.Errorf("%s, block %d: a block is one of %v, not %q", name, i+1, languages, b[1])
			}
			if kind == "sh" {
				runBlock(t, name, b[2], bin)
			}
		}
	}
}

func runBlock(t *testing.T, name, script, bin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", script)
	cmd.Dir = checkout(t)
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	// What a block leaves running is not waited for longer than this.
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte(cannot)) {
		t.Logf("%s: not run to its end, since %s", name, cannot)
		return
	}
	if err != nil {
		t.Errorf("%s: a block does not run: %v\n%s\nIt said:\n%s", name, err, script, out)
	}
}

// checkout is a folder with everything that the repository has at its top, and nothing else.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	entries, err := os.ReadDir(top)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != ".git" && e.Name() != ".bin" {
			require.NoError(t, os.Symlink(filepath.Join(top, e.Name()), filepath.Join(dir, e.Name())))
		}
	}
	return dir
}
