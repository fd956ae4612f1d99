package engines

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Pump copies a stream of a command to a writer until its end, or until Finish has been called and what was in the
// pipe then has been copied. Engines whose commands write into pipes share it.
type Pump struct {
	from *os.File
	to   io.Writer
	done sync.WaitGroup
	err  error // of the writer, once done
}

// drainGrace is how long a stream may stay silent, after its command's own process has ended, before it is left
// to the background processes that hold it open. pipeRoom is how much can be in a pipe (pipe(7)).
const (
	drainGrace = 20 * time.Millisecond
	pipeRoom   = 64 << 10
)

// NewPump starts to copy from, the reading end of a pipe, to to; nil discards it. Finish ends it.
func NewPump(from *os.File, to io.Writer) *Pump {
	p := &Pump{from: from, to: to}
	if p.to == nil {
		p.to = io.Discard
	}
	p.done.Go(p.run)
	return p
}

func (p *Pump) run() {
	buf := make([]byte, 64<<10)
	for {
		n, err := p.from.Read(buf)
		p.put(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	for left := pipeRoom; left > 0; {
		if err := p.from.SetReadDeadline(time.Now().Add(drainGrace)); err != nil {
			return
		}
		n, err := p.from.Read(buf[:min(left, len(buf))])
		p.put(buf[:n])
		if err != nil {
			return
		}
		left -= n
	}
}

// put keeps the first error of the writer and goes on reading, so that the command is not held up by it.
func (p *Pump) put(b []byte) {
	if len(b) == 0 || p.err != nil {
		return
	}
	if _, err := p.to.Write(b); err != nil {
		p.err = err
	}
}

// Finish waits for the copies after the command's process has ended, and returns the writers' errors. The pipes are
// closed together, so that a process left behind that fails on one does not complain into the other.
func Finish(pumps ...*Pump) error {
	var errs []error
	for _, p := range pumps {
		errs = append(errs, p.from.SetReadDeadline(time.Unix(1, 0)))
	}
	for _, p := range pumps {
		p.done.Wait()
		errs = append(errs, p.err)
	}
	for _, p := range pumps {
		errs = append(errs, p.from.Close())
	}
	return errors.Join(errs...)
}
