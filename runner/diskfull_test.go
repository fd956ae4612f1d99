package runner_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/pipeline"
	"spindle/workflow"
)

// smallDisk names the variable by which the test tells itself, in a process of its own, where to mount a small disk.
const smallDisk = "SPINDLE_TEST_SMALL_DISK"

// B-059: a disk that is full ends the attempt with a name for it; the result is reported and the next attempt
// passes once there is room.
func TestB059DiskFull(t *testing.T) {
	dir := os.Getenv(smallDisk)
	if dir == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestB059DiskFull$", "-test.v")
		c.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Skipf("needs a user namespace, in which a small disk can be mounted: %v", err)
		}
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("needs a small disk: %s", out)
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestB059DiskFull/a_failure_stays_a_failure")
		return
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	flood := "echo " + strings.Repeat("x", 100<<10)
	fill := func(t *testing.T) {
		f, err := os.Create(filepath.Join(dir, "fill"))
		require.NoError(t, err)
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	for _, c := range []struct {
		name   string
		before func(*testing.T)
		steps  []string
		status pipeline.Status
		reason string
	}{
		{"fills in a step", nil, []string{flood, "echo never"}, pipeline.Error, "the spindle's disk is full (not your code)"},
		{"full from the beginning", fill, []string{"echo one"}, pipeline.Error, "the spindle's disk is full (not your code)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, filepath.Join(dir, "logs"))
			if c.before != nil {
				c.before(t)
			}
			row := w.run(does(c.steps...))
			require.Equal(t, c.status, row.Status)
			require.Contains(t, row.Reason, c.reason)
			require.NotContains(t, w.seen(), "run echo never")
			require.Contains(t, w.seen(), "close")
			list, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, f := range list {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, f.Name())))
			}
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "logs"), 0o750))
			require.Equal(t, pipeline.Passed, w.run(does("true")).Status, "there is room again")
		})
	}
	t.Run("a failure stays a failure", func(t *testing.T) {
		w := newWorld(t, filepath.Join(dir, "logs"))
		w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
			fill(t)
			return engines.Result{ExitCode: 7}, nil, true
		}
		// The beginning of the step fits the first page of the log, its end does not fit any more.
		j := does("make #" + strings.Repeat("x", 2200))
		j.spec.Steps[0].Name = strings.Repeat("n", 900)
		row := w.run(j)
		require.Equal(t, pipeline.Failed, row.Status)
		require.Equal(t, 7, row.ExitCode)
		require.Contains(t, row.Reason, "exited 7; its log is not complete: the spindle's disk is full")
		require.Equal(t, row.Reason, row.Steps[0].Reason)
	})
}

// A log that cannot be begun is told; no step runs unseen.
func TestLogThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	w := newWorld(t, dir)
	require.NoError(t, os.RemoveAll(dir))
	j := does("true")
	j.spec.Clone = workflow.Clone{Depth: 1}
	row := w.run(j)
	require.Equal(t, pipeline.Error, row.Status)
	require.Contains(t, row.Reason, "not your code")
	require.NotContains(t, row.Reason, dir)
	require.NotContains(t, w.seen(), "open")
}

// B-087: a step's row that cannot be written ends the attempt; nothing runs that nobody could see.
func TestRowThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startOne = func() error { return errors.New("disk I/O error") }
	row := w.run(does("echo one"))
	require.Equal(t, pipeline.Error, row.Status)
	require.Contains(t, row.Reason, "not your code")
	require.NotContains(t, w.seen(), "run echo one")
}
