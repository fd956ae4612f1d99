package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"spindle/engines"
)

// bounds are what an attempt may use, in bytes and processes. Zero means no bound.
type bounds struct {
	memory, disk, pids int64
}

// defaultPids and defaultDisk hold where nothing is said: far above what builds need, far below what hurts.
const (
	defaultPids = 4096
	defaultDisk = 10 << 30
)

// memoryShare is the part of the machine's memory that one attempt may have where nothing is said.
const memoryShare = 0.75

// watchEvery is how long an attempt can be over its bounds: at memory speed that is some hundred megabytes.
const watchEvery = 100 * time.Millisecond

// bounds completes the limits of a Spec.
func (e *Engine) bounds(l engines.Limits) bounds {
	b := bounds{memory: l.Memory, pids: l.Pids, disk: e.cfg.Disk}
	if b.memory == 0 {
		b.memory = e.cfg.Limits.Memory
	}
	if b.pids == 0 {
		b.pids = e.cfg.Limits.Pids
	}
	if b.memory == 0 {
		b.memory = e.memory
	}
	if b.pids == 0 {
		b.pids = defaultPids
	}
	return b
}

// machineMemory is how much memory one attempt may use by default, or 0 when the machine does not say.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(float64(uint64(info.Totalram)*uint64(info.Unit)) * memoryShare)
}

// watch ends the attempt when it is over its bounds for memory or disk, and returns when ctx ends. All memory of
// guest processes is one anonymous file of the sandbox, and everything that they write is another, so that
// two fstat calls see the whole (gVisor names them; see names below). It needs no control group and so works for ordinary users.
func (a *attempt) watch(ctx context.Context, pid int) {
	files := map[string]int{} // name to descriptor
	defer func() {
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}()
	for round := 0; a.e.cfg.Clock.Sleep(ctx, watchEvery) == nil; round++ {
		if len(files) < len(watched) {
			openWatched(pid, files)
			if round == watchPatience {
				a.e.cfg.Log.Warn("the bounds of an attempt cannot be watched", "attempt", a.spec.ID, "found", len(files))
			}
		}
		if used := allocated(files, memoryFile); a.bounds.memory > 0 && used > a.bounds.memory {
			a.end(fmt.Errorf("the attempt used %d bytes of memory, more than %d", used, a.bounds.memory), engines.KilledMemory)
		}
		if used := allocated(files, diskFile); a.bounds.disk > 0 && used > a.bounds.disk {
			a.end(fmt.Errorf("the attempt wrote %d bytes, more than %d", used, a.bounds.disk), engines.KilledDisk)
		}
	}
}

// watchPatience is after how many rounds it is told that the files were not found.
const watchPatience = 100

// memoryFile and diskFile are how gVisor names the files behind guest memory and behind the written layer.
const (
	memoryFile = "memfd:runsc-memory"
	diskFile   = "runsc-filestore-"
)

var watched = [...]string{memoryFile, diskFile}

// openWatched finds the watched files among the descriptors of the sandbox process.
func openWatched(pid int, files map[string]int) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return // it is ending; the attempt learns that in its own way
	}
	for _, n := range names {
		to, err := os.Readlink(filepath.Join(dir, n.Name()))
		if err != nil {
			continue
		}
		for _, name := range watched {
			if _, have := files[name]; have || !strings.HasPrefix(filepath.Base(to), name) {
				continue
			}
			if fd, err := unix.Open(filepath.Join(dir, n.Name()), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
				files[name] = fd
			}
		}
	}
}

// allocated is how many bytes a file takes; holes take none.
func allocated(files map[string]int, name string) int64 {
	fd, ok := files[name]
	if !ok {
		return 0
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Blocks * 512 // stat(2): always in units of 512
}
