package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines/enginetest"
	"spindle/engines/sandbox"
	"spindle/engines/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	var state string
	e := sandboxtest.New(t, func(c *sandbox.Config) { state = c.StateDir })
	enginetest.Run(t, enginetest.Suite{Engine: e, Machine: true, Left: func() ([]string, error) { return left(state) }})
}

// left lists processes that name the state folder, and what is in the folder of attempts.
func left(state string) ([]string, error) {
	var found []string
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), "--root="+state) {
			found = append(found, p+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	files, err := filepath.Glob(filepath.Join(state, "a", "*"))
	if err != nil {
		return nil, err
	}
	mounts, err := exec.Command("grep", "-F", state, "/proc/self/mountinfo").Output()
	if err == nil {
		found = append(found, strings.TrimSpace(string(mounts)))
	}
	return append(found, files...), nil
}

var _ = require.NoError
