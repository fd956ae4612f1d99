package logs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// maxLine bounds a line of the file: a split line with every byte escaped, and its fields.
const maxLine = 1 << 20

// readAhead is how much of a file is read at once, in bytes. A reader of few lines reads less.
const readAhead = 64 << 10

// Read returns up to most lines from the byte offset on, the offset after them, and whether the log has
// ended there. An offset must be 0 or one that Read gave. Errors: ErrNoLog, ErrOffset.
func (l *Logs) Read(ctx context.Context, ref Ref, offset int64, most int) (lines []Line, next int64, ended bool, err error) {
	f, err := l.file(ref)
	if err != nil {
		return nil, offset, false, err
	}
	defer f.Close()
	// Whether somebody writes is asked after the file is there, or a writer that just began would be missed, and
	// before it is read: what is written between the two is read next time.
	size, live := int64(0), false
	if w := l.writer(ref); w != nil {
		size, _ = w.state()
		live = true
	} else if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return nil, offset, false, fmt.Errorf("seek in the log: %w", err)
	}
	if err := begins(f, offset, size); err != nil {
		return nil, offset, false, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, false, fmt.Errorf("seek in the log: %w", err)
	}
	next = offset
	r := bufio.NewReaderSize(io.LimitReader(f, size-offset), readAhead/16*min(max(1, most), 16))
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

// begins refuses an offset at which no line can begin.
func begins(f *os.File, offset, size int64) error {
	if offset == 0 {
		return nil
	}
	if offset < 0 || offset > size {
		return ErrOffset
	}
	var before [1]byte
	if _, err := f.ReadAt(before[:], offset-1); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if before[0] != '\n' {
		return ErrOffset
	}
	return nil
}

// readLine reads a whole line, which holds until the next read. What follows the last line break is a torn
// line: io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && b == nil {
			return part, nil
		}
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

// Tail returns the last n data lines of a step. It reads backwards from where the next step begins, so it
// costs the same in a log of any size.
func (l *Logs) Tail(ctx context.Context, ref Ref, step, n int) ([]Line, error) {
	x, err := l.indexOf(ctx, ref)
	if err != nil || n <= 0 {
		return nil, err
	}
	first, end := x.Steps[step], x.Lines
	if _, ok := x.Steps[step]; ok {
		for _, other := range x.Steps {
			if other > first {
				end = min(end, other)
			}
		}
	}
	var blocks [][]Line // the last first
	for have := 0; have < n && end > first; {
		from, offset := x.seek(end - 1)
		got, _, _, err := l.Read(ctx, ref, offset, int(end-from))
		if err != nil {
			return nil, err
		}
		got = got[min(max(0, first-from), int64(len(got))):]
		got = slices.DeleteFunc(got, func(line Line) bool { return line.Step != step || line.Kind != Data })
		blocks = append(blocks, got)
		have, end = have+len(got), from
	}
	slices.Reverse(blocks)
	out := slices.Concat(blocks...)
	return out[max(0, len(out)-n):], nil
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
