package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reap makes sure that no process of the attempt is left. The kernel kills them when runsc run ends; what it
// has not got to yet is killed by name of the attempt's folder, which stands on the command line of each.
func (a *attempt) reap() error {
	deadline := time.Now().Add(reapTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := processesOf(a.dir, false)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of %s are still there after %s", pids, a.dir, reapTimeout)
		}
		time.Sleep(wait)
	}
}

// processesOf lists the processes whose command line has --root for an attempt at dir, or below it when all is set.
// runsc exec processes are included; they are of no use without their sandbox.
func processesOf(dir string, all bool) ([]int, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
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
		for arg := range strings.SplitSeq(string(b), "\x00") {
			root, ok := strings.CutPrefix(arg, "--root=")
			if ok && (root == runDir(dir) || all && strings.HasPrefix(root, dir+"/")) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids, nil
}

// exists says that there is something at path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && err == nil
}
