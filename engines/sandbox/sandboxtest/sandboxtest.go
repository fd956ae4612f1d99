// Package sandboxtest gives tests a sandbox engine, or skips them with the reason where sandboxes cannot run.
//
// A test binary cannot be its own runsc: with the race detector it is linked dynamically, which gVisor cannot use.
// So spindle itself is built once, statically, into a folder that all packages share. The environment variable
// SPINDLE_TEST_RUNSC names a ready one instead.
package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"spindle/engines/sandbox"
)

// EnvRunsc names a ready, static executable that acts as runsc.
const EnvRunsc = "SPINDLE_TEST_RUNSC"

// probeTime bounds the question whether sandboxes run here.
const probeTime = time.Minute

// Runsc is the path of a static executable that acts as runsc when its argument zero says so. It skips the test
// when there is none and none can be built.
func Runsc(tb testing.TB) string {
	tb.Helper()
	path, err := runsc()
	if err != nil {
		tb.Skipf("no runsc to test with: %v", err)
	}
	return path
}

// New is an engine in a folder of its own that is removed with the test. It skips the test where sandboxes
// cannot run.
func New(tb testing.TB, change ...func(*sandbox.Config)) *sandbox.Engine {
	tb.Helper()
	cfg := sandbox.Config{Runsc: Runsc(tb), StateDir: Dir(tb)}
	for _, f := range change {
		f(&cfg)
	}
	e, err := sandbox.New(cfg)
	if err != nil {
		tb.Fatalf("make a sandbox engine: %v", err)
	}
	tb.Cleanup(func() {
		if err := e.Sweep(context.Background()); err != nil {
			tb.Errorf("sweep: %v", err)
		}
	})
	if err := probe(e); err != nil {
		tb.Skipf("sandboxes cannot run here: %v", err)
	}
	return e
}

// Dir is a folder with a short path, removed with the test: sockets lie in it.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sbx")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the engine's folder: %v", err)
		}
	})
	return dir
}

// runsc and probe are done once in a process: the answers do not change.
var runsc = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(EnvRunsc); path != "" {
		return path, nil
	}
	return build()
})

var probed struct {
	once sync.Once
	err  error
}

func probe(e *sandbox.Engine) error {
	probed.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		_, probed.err = e.Probe(ctx)
	})
	return probed.err
}

// build makes spindle in the shared folder. A lock keeps packages that are tested side by side from building it twice;
// go itself knows whether anything is to be done.
func build() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("spindle-test-%d", os.Getuid()))
	}
	dir = filepath.Join(dir, "spindle-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	path := filepath.Join(dir, "spindle")
	cmd := exec.Command("go", "build", "-o", path, "spindle/cmd/spindle")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build spindle: %w: %s", err, out)
	}
	return path, nil
}
