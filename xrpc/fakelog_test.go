package xrpc_test

import (
	"context"
	"io"
	"sync"

	"spindle/xrpc"
)

// fakeLog is a log that grows.
type fakeLog struct {
	mu    sync.Mutex
	lines []xrpc.LogLine
	ended bool
	more  chan struct{}
}

func (l *fakeLog) add(lines ...xrpc.LogLine) { l.grow(false, lines) }
func (l *fakeLog) end()                      { l.grow(true, nil) }

func (l *fakeLog) grow(end bool, lines []xrpc.LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.ended = append(l.lines, lines...), l.ended || end
	close(l.more)
	l.more = make(chan struct{})
}

type fakeReader struct {
	log *fakeLog
	at  int
}

func (r *fakeReader) Next(ctx context.Context) (xrpc.LogLine, error) {
	for {
		r.log.mu.Lock()
		more, ended, n := r.log.more, r.log.ended, len(r.log.lines)
		if r.at < n {
			line := r.log.lines[r.at]
			r.at++
			r.log.mu.Unlock()
			return line, nil
		}
		r.log.mu.Unlock()
		if ended {
			return xrpc.LogLine{}, io.EOF
		}
		select {
		case <-ctx.Done():
			return xrpc.LogLine{}, ctx.Err()
		case <-more:
		}
	}
}

func (r *fakeReader) Close() error { return nil }

func data(step int, text string) xrpc.LogLine {
	return xrpc.LogLine{Kind: "data", Content: text, Time: epoch, StepID: step, Stream: "stdout"}
}
