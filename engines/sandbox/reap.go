package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// processesOf lists the processes of the attempt at dir: those whose command line has its --root. The kernel ends
// them when runsc run ends; this is the proof, and the way to find what a dead server left.
func processesOf(dir string) ([]int, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("sandbox: list processes: %w", err)
	}
	var pids []int
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", n.Name(), "cmdline"))
		if err != nil {
			continue // it ended, or is not ours to see
		}
		if slices.Contains(strings.Split(string(b), "\x00"), "--root="+runDir(dir)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
