package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// indexEvery is how many lines lie between two offsets of the index.
const indexEvery = 256

// indexSuffix names the file beside a log that holds its index.
const indexSuffix = ".idx"

// index says where lines are, so that a page in the middle is found without reading what is before it.
type index struct {
	// Lines is how many lines there are.
	Lines int64 `json:"lines"`
	// Offsets holds the byte at which line indexEvery, 2*indexEvery, … begins, counted from 0.
	Offsets []int64 `json:"offsets"`
	// Steps is the first line of each step.
	Steps map[int]int64 `json:"steps"`
}

func (x index) save(path string) error {
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("encode the index: %w", err)
	}
	if err := os.WriteFile(path, b, 0o640); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

// seek is the greatest indexed line that is not after line, and the byte at which it begins.
func (x index) seek(line int64) (at, offset int64) {
	i := min(line/indexEvery, int64(len(x.Offsets)))
	if i <= 0 {
		return 0, 0
	}
	return i * indexEvery, x.Offsets[i-1]
}

// indexOf is the log's index: the writer's own, the saved one, or a new one for a log whose writer was killed
// or could not write. A new one is saved, as such a log does not change any more.
func (l *Logs) indexOf(ctx context.Context, ref Ref) (index, error) {
	if !l.Exists(ref) {
		return index{}, ErrNoLog
	}
	if w := l.writer(ref); w != nil {
		return w.snapshot(), nil
	}
	b, err := os.ReadFile(l.path(ref) + indexSuffix)
	var x index
	if err == nil && json.Unmarshal(b, &x) == nil {
		return x, nil
	}
	if x, err = l.rebuild(ctx, ref); err != nil {
		return index{}, err
	}
	if err := x.save(l.path(ref) + indexSuffix); err != nil {
		l.c.Log.WarnContext(ctx, "save the index of a log", "pipeline", ref.Pipeline, "workflow", ref.Workflow, "error", err)
	}
	return x, nil
}

// rebuild makes the index from the file. Data lines, which are most, are looked at and not decoded.
func (l *Logs) rebuild(ctx context.Context, ref Ref) (index, error) {
	x := index{Steps: map[int]int64{}}
	f, err := l.file(ref)
	if err != nil {
		return x, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, readAhead)
	for offset := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return x, err
		}
		b, err := readLine(r)
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return x, fmt.Errorf("read the log: %w", err)
		}
		offset += int64(len(b))
		if !bytes.HasPrefix(b, []byte(dataStart)) || !json.Valid(b) {
			var line Line
			if json.Unmarshal(b, &line) != nil {
				continue
			}
			if line.Kind == Control && line.StepStatus == Start {
				x.Steps[line.Step] = x.Lines
			}
		}
		if x.Lines++; x.Lines%indexEvery == 0 {
			x.Offsets = append(x.Offsets, offset)
		}
	}
}
