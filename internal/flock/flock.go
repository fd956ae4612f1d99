package flock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is held until it is released or the process ends, however it ends.
type Lock struct{ file *os.File }

// HeldError is a lock that another process holds.
type HeldError struct {
	Path   string // of the lock file
	Holder string // who holds it, for people
}

// Error implements error.
func (e *HeldError) Error() string { return e.Path + " is locked by " + e.Holder }

// Take takes the lock whose file is path and writes into it who holds it since when; *HeldError if another process
// does, which is not waited for.
func Take(path string, since time.Time) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("flock: open the lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := readHolder(f)
		_ = f.Close()
		if err != unix.EWOULDBLOCK {
			return nil, fmt.Errorf("flock: lock %s: %w", path, err)
		}
		return nil, &HeldError{Path: path, Holder: holder}
	}
	text := fmt.Sprintf("%d %s\n", os.Getpid(), since.UTC().Format(time.RFC3339))
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(text), 0)
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("flock: write the lock file: %w", err)
		}
	}
	return &Lock{file: f}, nil
}

// readHolder tells who wrote the lock file. Its text is only for people.
func readHolder(f *os.File) string {
	b := make([]byte, 64)
	n, _ := f.ReadAt(b, 0)
	pid, since, ok := strings.Cut(strings.TrimSpace(string(b[:n])), " ")
	if _, err := strconv.Atoi(pid); err != nil || !ok {
		return "another process"
	}
	return "pid " + pid + " since " + since
}

// Release gives the lock up before it closes the file. Closing alone is not enough: a child that another goroutine
// starts at this moment has a copy of every descriptor from its fork to its exec, and the kernel keeps a lock until the
// last copy is closed (flock(2)). Unlocking through any copy ends it for all.
func (l *Lock) Release() error {
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	if err != nil {
		err = fmt.Errorf("flock: unlock: %w", err)
	}
	return errors.Join(err, l.file.Close())
}
