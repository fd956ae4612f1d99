package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock keeps a second process away from a database. The kernel drops it when the process ends, however it ends.
type lock struct{ file *os.File }

// takeLock takes the lock beside the database, or says who has it.
func takeLock(path string, since time.Time) (*lock, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: open the lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := readHolder(f)
		_ = f.Close()
		if err != unix.EWOULDBLOCK {
			return nil, fmt.Errorf("store: lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s is used by %s; stop that one first, or give this one its own database", ErrLocked, path, holder)
	}
	text := fmt.Sprintf("%d %s\n", os.Getpid(), since.UTC().Format(time.RFC3339))
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(text), 0)
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("store: write the lock file: %w", err)
		}
	}
	return &lock{file: f}, nil
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

// release gives the lock up before it closes the file. Closing alone is not enough: a child that another goroutine
// starts at this moment has a copy of every descriptor from its fork to its exec, and the kernel keeps a lock until the
// last copy is closed (flock(2)). Unlocking through any copy ends it for all.
func (l *lock) release() error {
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	if err != nil {
		err = fmt.Errorf("store: unlock: %w", err)
	}
	return errors.Join(err, l.file.Close())
}
