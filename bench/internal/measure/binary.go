package measure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// EnvBinary names a static, stripped spindle that is ready; scripts/bench.sh builds one for all programs.
const EnvBinary = "SPINDLE_BENCH_BINARY"

// Binary is the path of a static, stripped spindle. Where EnvBinary names none it is built, and done removes it.
func Binary(ctx context.Context) (path string, done func(), err error) {
	if path := os.Getenv(EnvBinary); path != "" {
		if path, err = filepath.Abs(path); err != nil {
			return "", nil, fmt.Errorf("%s: %w", EnvBinary, err)
		}
		if _, err := os.Stat(path); err != nil {
			return "", nil, fmt.Errorf("%s: %w", EnvBinary, err)
		}
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "spindle-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the binary: %w", err)
	}
	path = filepath.Join(dir, "spindle")
	Note("building spindle; %s=FILE names a ready one", EnvBinary)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "spindle/cmd/spindle")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir) // the build's error matters more
		return "", nil, fmt.Errorf("build spindle: %w: %s", err, out)
	}
	return path, func() { _ = os.RemoveAll(dir) }, nil
}
