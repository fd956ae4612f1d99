package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Sweep removes what a server that died has left in the state folder: processes, then files. It keeps what belongs
// to attempts that are open. It is to be called once at the start, and may be called at any time.
func (e *Engine) Sweep(ctx context.Context) error {
	root := filepath.Join(e.cfg.StateDir, attemptsDir)
	names, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("sandbox: list attempts: %w", err)
	}
	e.mu.Lock()
	ours := map[string]bool{}
	for _, a := range e.open {
		ours[a.dir] = true
	}
	e.mu.Unlock()
	var errs []error
	for _, n := range names {
		dir := filepath.Join(root, n.Name())
		if ours[dir] {
			continue
		}
		e.cfg.Log.Info("removing what an earlier server left of an attempt", "dir", dir)
		if err := killAll(ctx, dir); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("sandbox: remove a left attempt: %w", err))
		}
	}
	hosts, err := filepath.Glob(filepath.Join(e.cfg.StateDir, hostPrefix+"*"))
	if err != nil {
		return fmt.Errorf("sandbox: list skeletons: %w", err)
	}
	for _, dir := range hosts {
		if dir == e.host.root || dir == e.kit.at() {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("sandbox: remove a left skeleton: %w", err))
		}
	}
	return errors.Join(errs...)
}

// killAll ends the processes of the attempt at dir and waits until they are gone.
func killAll(ctx context.Context, dir string) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := processesOf(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended since
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sandbox: processes %v are still there: %w", pids, ctx.Err())
		case <-time.After(wait):
		}
	}
}
