package flock

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHeldLockTellsWhoHoldsIt takes one lock twice.
func TestHeldLockTellsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	since := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	l, err := Take(path, since)
	require.NoError(t, err)
	_, err = Take(path, time.Now())
	var held *HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "pid "+strconv.Itoa(os.Getpid())+" since 2026-11-30T01:02:03Z", held.Holder)
	require.NoError(t, l.Release())
	l, err = Take(path, since)
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

// TestReleaseFreesWhatAChildHasACopyOf gives the lock free while a child process still has its descriptor.
func TestReleaseFreesWhatAChildHasACopyOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Take(path, time.Now())
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	child.ExtraFiles = []*os.File{l.file}
	require.NoError(t, child.Start())
	require.NoError(t, l.Release())
	l, err = Take(path, time.Now())
	require.NoError(t, err)
	require.NoError(t, l.Release())
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
}
