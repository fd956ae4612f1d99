package sandbox

import (
	"strings"
	"sync"
)

// tail keeps the last bytes that were written to it. It is for what runsc says, which is short unless something is
// very wrong. Safe for use from two goroutines.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 2 << 10

// Write implements io.Writer and never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String is what was said, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.buf)), " ")
}
