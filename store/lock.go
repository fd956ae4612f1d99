package store

import (
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

func (l *lock) release() error { return l.file.Close() }
