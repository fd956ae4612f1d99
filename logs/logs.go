package logs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"spindle/internal/clock"
)

// ErrNoLog is an attempt that has not written anything (yet).
var ErrNoLog = errors.New("logs: there is no log of that attempt")

// ErrOffset is an offset at which no line begins.
var ErrOffset = errors.New("logs: no line of the log begins at that offset")

// Bounds of Limits.Line.
const (
	minContent = 8
	maxContent = 64 << 10
)

// Ref names the log of one attempt. Attempt counts from 1.
type Ref struct {
	Pipeline string
	Workflow string
	Attempt  int
}

// Limits bound one attempt's log.
type Limits struct {
	// Bytes is how much output is kept, in bytes of the file: what is around and inside each line to make it
	// JSON counts, or many short lines would take much more of the disk. 0 means 32 MiB.
	Bytes int64
	// Line is where a longer line is split, without its line end; 8 bytes to 64 KiB, 0 means 64 KiB.
	Line int
	// Delay is how long output may wait before it is written; 0 means 20 ms.
	Delay time.Duration
}

// Config is what Open needs.
type Config struct {
	// Dir holds the files. It is made if it is missing.
	Dir    string
	Clock  clock.Clock
	Limits Limits
	// Log takes what readers cannot be told; nil drops it.
	Log *slog.Logger
}

// Logs is a folder of logs. It is safe for concurrent use.
type Logs struct {
	c Config

	mu   sync.Mutex
	open map[Ref]*Writer
}

// Open returns the logs in c.Dir.
func Open(c Config) (*Logs, error) {
	if c.Limits.Bytes <= 0 {
		c.Limits.Bytes = 32 << 20
	}
	if c.Limits.Line <= 0 {
		c.Limits.Line = maxContent
	}
	if c.Limits.Line < minContent || c.Limits.Line > maxContent {
		return nil, fmt.Errorf("logs: lines of %d bytes: allowed are %d to %d", c.Limits.Line, minContent, maxContent)
	}
	if c.Limits.Delay <= 0 {
		c.Limits.Delay = 20 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the log folder: %w", err)
	}
	return &Logs{c: c, open: map[Ref]*Writer{}}, nil
}

// Exists tells whether the attempt has written a log.
func (l *Logs) Exists(ref Ref) bool {
	_, err := os.Stat(l.path(ref))
	return err == nil
}

// Create begins the log of an attempt. Values in mask never reach the file. A second log of one attempt is refused.
func (l *Logs) Create(ref Ref, mask []string) (*Writer, error) {
	// The file and its entry come at once for readers: a file without a writer is a log that has ended.
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path(ref), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s/%s attempt %d: %w", ref.Pipeline, ref.Workflow, ref.Attempt, err)
	}
	w := &Writer{
		logs: l, ref: ref, file: f, patterns: newPatterns(mask),
		outputs: map[*output]struct{}{}, wake: make(chan struct{}), index: index{Steps: map[int]int64{}},
	}
	l.open[ref] = w
	return w, nil
}

// Remove deletes the log of an attempt; a missing one is no error.
func (l *Logs) Remove(ref Ref) error {
	for _, p := range []string{l.path(ref), l.path(ref) + indexSuffix} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a log: %w", err)
		}
	}
	return nil
}

// writer is the writer that holds ref's log, or nil.
func (l *Logs) writer(ref Ref) *Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[ref]
}

func (l *Logs) forget(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, ref)
}

// path is <pipeline>-<workflow>.log, with the attempt's number for those after the first. Characters that
// could leave the folder or hide a file become "-"; a name that had such has its hash added, since another
// name may become the same. The end of a file name, .yml or .yaml, is no reason for that.
func (l *Logs) path(ref Ref) string {
	name := safe(ref.Pipeline) + "-" + safe(ref.Workflow)
	stem := strings.TrimSuffix(strings.TrimSuffix(ref.Workflow, ".yml"), ".yaml")
	if safe(stem) != stem || safe(ref.Pipeline) != ref.Pipeline {
		sum := sha256.Sum256([]byte(ref.Pipeline + "\x00" + ref.Workflow))
		name += "." + hex.EncodeToString(sum[:6])
	}
	if ref.Attempt > 1 {
		name += "." + strconv.Itoa(ref.Attempt)
	}
	return filepath.Join(l.c.Dir, name+".log")
}

func safe(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '=':
			return r
		}
		return '-'
	}, s)
}
