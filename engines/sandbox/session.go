package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// session is one runsc exec: started, but waiting on a pipe for the description of its process. That pipe keeps
// a command's environment out of the process list and lets the process be started before the command is known.
type session struct {
	cmd      *exec.Cmd
	ask      *os.File // the description goes in here
	out, err *os.File // the guest's stdout and stderr come out here
	said     tail     // what runsc itself says; the guest cannot write there

	done chan struct{} // closed when runsc exec has ended
	code int           // its exit code, once done
}

// newSession starts a runsc exec. The sandbox must be up.
func (a *attempt) newSession() (*session, error) {
	var ours, theirs []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	defer func() { closeAll(theirs) }()
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		if i == 0 {
			ours, theirs = append(ours, w), append(theirs, r)
		} else {
			ours, theirs = append(ours, r), append(theirs, w)
		}
	}
	s := &session{ask: ours[0], out: ours[1], err: ours[2], done: make(chan struct{})}
	s.cmd = a.e.runsc(a.dir, "exec", "--process=/proc/self/fd/3", "--pass-fd=4:1", "--pass-fd=5:2", containerID)
	s.cmd.SysProcAttr = a.e.self.execAttributes()
	s.cmd.ExtraFiles = theirs
	s.cmd.Stderr = &s.said
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		closeAll(ours)
		return nil, fmt.Errorf("start runsc exec: %w", err)
	}
	go s.wait()
	return s, nil
}

// wait owns the process.
func (s *session) wait() {
	err := s.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		s.code = exit.ExitCode()
	default:
		s.code = -1
	}
	close(s.done)
}

// send hands the process over.
func (s *session) send(p *specs.Process) error {
	b, err := json.Marshal(p)
	if err == nil {
		_, err = s.ask.Write(b)
	}
	return errors.Join(err, s.ask.Close())
}

// kill ends a runsc exec that has ended, or has nothing to wait for since its sandbox is gone.
func (s *session) kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.done
}

// abandon ends a session whose command will not come, or whose sandbox has ended.
func (s *session) abandon() {
	s.ask.Close()
	_ = s.cmd.Process.Kill()
	s.out.Close()
	s.err.Close()
}

// runscFailed is what runsc exits with when it fails itself (runsc/cli), with words on its stderr.
const runscFailed = 128

// failure is the error of a command that never ran, or nil.
func (s *session) failure() error {
	if said := s.said.String(); s.code == -1 || s.code == runscFailed && said != "" {
		return fmt.Errorf("runsc exec ended with %d and said: %s", s.code, said)
	}
	return nil
}

// pump copies a stream of the guest to w until its end, or until finish has been called and what was in the pipe
// then has been copied.
type pump struct {
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

func newPump(from *os.File, to io.Writer) *pump {
	p := &pump{from: from, to: to}
	if p.to == nil {
		p.to = io.Discard
	}
	p.done.Go(p.run)
	return p
}

func (p *pump) run() {
	buf := make([]byte, 32<<10)
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

// put keeps the first error of the writer and goes on reading, so that the guest is not held up by it.
func (p *pump) put(b []byte) {
	if len(b) == 0 || p.err != nil {
		return
	}
	if _, err := p.to.Write(b); err != nil {
		p.err = err
	}
}

// finish waits for the copies after the command's process has ended. The pipes are closed together, so that a process
// left behind that fails on one does not complain into the other.
func finish(pumps ...*pump) error {
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
