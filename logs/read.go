package logs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
)

// maxLine bounds a line of the file: a split line with every byte escaped, and its fields.
const maxLine = 1 << 20

// Read returns up to most lines from the byte offset on, the offset after them, and whether the log has
// ended there. An offset must be 0 or one that Read gave.
func (l *Logs) Read(ctx context.Context, ref Ref, offset int64, most int) (lines []Line, next int64, ended bool, err error) {
	// Whether somebody writes is asked before the file is read: what is written between the two is read next time.
	size, live := int64(math.MaxInt64), false
	if w := l.writer(ref); w != nil {
		size, _ = w.state()
		live = true
	}
	f, err := l.file(ref)
	if err != nil {
		return nil, offset, false, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, false, fmt.Errorf("seek in the log: %w", err)
	}
	next = offset
	r := bufio.NewReaderSize(io.LimitReader(f, size-offset), 64<<10)
	for len(lines) < most {
		if err := ctx.Err(); err != nil {
			return nil, offset, false, err
		}
		b, err := readLine(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return lines, next, !live, nil
			}
			return nil, offset, false, fmt.Errorf("read the log: %w", err)
		}
		next += int64(len(b))
		var line Line
		if json.Unmarshal(b, &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines, next, false, nil
}

// readLine reads a whole line. What follows the last line break is a torn line: io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(b) <= maxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, errors.New("a line is too long")
		}
		return nil, err
	}
}

// Follow is Read that waits until there is something to return or the log has ended.
func (l *Logs) Follow(ctx context.Context, ref Ref, offset int64, most int) (lines []Line, next int64, ended bool, err error) {
	for {
		w := l.writer(ref)
		var wake <-chan struct{}
		if w != nil {
			_, wake = w.state() // before the read: what comes after it wakes us
		}
		lines, next, ended, err = l.Read(ctx, ref, offset, most)
		if err != nil || ended || len(lines) > 0 {
			return lines, next, ended, err
		}
		if wake == nil {
			continue // the writer came or went in between
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, offset, false, ctx.Err()
		}
	}
}

// Page returns up to count lines from line number from on, counted from 0, and how many lines there are.
func (l *Logs) Page(ctx context.Context, ref Ref, from int64, count int) (lines []Line, total int64, err error) {
	x, err := l.indexOf(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	at, offset := x.seek(from)
	for at < from+int64(count) {
		got, next, _, err := l.Read(ctx, ref, offset, indexEvery)
		if err != nil {
			return nil, 0, err
		}
		if len(got) == 0 {
			break
		}
		for i, line := range got {
			if n := at + int64(i); n >= from && n < from+int64(count) {
				lines = append(lines, line)
			}
		}
		at, offset = at+int64(len(got)), next
	}
	return lines, x.Lines, nil
}

// Steps is the number of the first line of each step.
func (l *Logs) Steps(ctx context.Context, ref Ref) (map[int]int64, error) {
	x, err := l.indexOf(ctx, ref)
	return x.Steps, err
}

// Tail returns the last n data lines of a step.
func (l *Logs) Tail(ctx context.Context, ref Ref, step, n int) ([]Line, error) {
	x, err := l.indexOf(ctx, ref)
	if err != nil {
		return nil, err
	}
	_, offset := x.seek(x.Steps[step])
	var out []Line
	for {
		got, next, _, err := l.Read(ctx, ref, offset, 4*indexEvery)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			return out, nil
		}
		for _, line := range got {
			if line.Step == step && line.Kind == Data {
				out = append(out, line)
			}
		}
		if len(out) > n {
			out = slices.Clone(out[len(out)-n:])
		}
		offset = next
	}
}

// OpenRaw opens the log's file as it is.
func (l *Logs) OpenRaw(ref Ref) (io.ReadCloser, error) { return l.file(ref) }

func (l *Logs) file(ref Ref) (*os.File, error) {
	f, err := os.Open(l.path(ref))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoLog
	}
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}

// indexOf is the log's index: the writer's own, the saved one, or for a log whose writer was killed a new one.
func (l *Logs) indexOf(ctx context.Context, ref Ref) (index, error) {
	if w := l.writer(ref); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		return index{Lines: w.lines, Offsets: slices.Clone(w.index.Offsets), Steps: maps.Clone(w.index.Steps)}, nil
	}
	b, err := os.ReadFile(l.path(ref) + indexSuffix)
	var x index
	if err == nil && json.Unmarshal(b, &x) == nil {
		return x, nil
	}
	return l.rebuild(ctx, ref)
}

func (l *Logs) rebuild(ctx context.Context, ref Ref) (index, error) {
	x := index{Steps: map[int]int64{}}
	var offset int64
	for {
		lines, next, ended, err := l.Read(ctx, ref, offset, indexEvery)
		if err != nil {
			return x, err
		}
		for i, line := range lines {
			if line.Kind == Control && line.StepStatus == Start {
				x.Steps[line.Step] = x.Lines + int64(i)
			}
		}
		x.Lines += int64(len(lines))
		if len(lines) == indexEvery {
			x.Offsets = append(x.Offsets, next)
		}
		offset = next
		if ended || len(lines) == 0 {
			return x, nil
		}
	}
}
