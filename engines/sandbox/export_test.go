package sandbox

import (
	"context"
	"os"
	"path/filepath"

	"spindle/engines"
)

// Bare runs a script in a sandbox with the same view through runsc alone and returns what it printed: what Open and
// Run are measured against.
func (e *Engine) Bare(ctx context.Context, image, script string) ([]byte, error) {
	v, release, err := e.view(ctx, engines.Spec{Image: image})
	if err != nil {
		return nil, err
	}
	defer release()
	dir := filepath.Join(e.cfg.StateDir, attemptsDir, "bare")
	if err := os.MkdirAll(runDir(dir), 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p := v.process([]string{"/bin/sh", "-c", script}, "/", []string{"PATH=" + v.path}, true)
	if err := e.writeBundle(dir, v, engines.Spec{}, p); err != nil {
		return nil, err
	}
	return e.runsc(dir, "run", "--bundle="+dir, containerID).Output()
}

// Static says whether the engine's runsc needs no loader.
func Static(e *Engine) bool { return static(e.cfg.Runsc) == nil }
