package logs

import (
	"encoding/json"
	"fmt"
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
