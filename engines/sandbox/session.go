package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
