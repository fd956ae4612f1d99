package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"spindle/engines"
)

// attempt is one sandbox. Its life is the life of one `runsc run`, which its boot goroutine owns:
// up is closed when the first guest process has spoken, gone when no process of the sandbox is left.
type attempt struct {
	e      *Engine
	spec   engines.Spec
	bounds bounds
	dir    string
	view   *view
	// release gives the view's image free, when nothing of the attempt is left.
	release func()

	turn chan struct{} // holds one token: whose turn it is to run a command
	up   chan struct{}
	gone chan struct{}
	told chan []byte // what init answers to collect

	mu      sync.Mutex
	main    *os.Process    // runsc run; nil before it is started
	why     engines.Killed // why the sandbox was ended, "" while it is not or when it ended by itself
	over    bool           // no more commands
	fault   error          // how the sandbox ended by itself; for the operator
	ask     *os.File       // where init is asked for files; nil before it is started
	token   string         // what ends the answer that is waited for
	next    *session       // a runsc exec that waits for its command, or nil
	removed bool           // the files are gone too
}

func newAttempt(e *Engine, s engines.Spec, dir string, v *view, release func()) *attempt {
	a := &attempt{e: e, spec: s, bounds: e.bounds(s.Limits), dir: dir, view: v, release: release, turn: make(chan struct{}, 1), up: make(chan struct{}), gone: make(chan struct{}), told: make(chan []byte, 1)}
	a.turn <- struct{}{}
	return a
}

// Workspace implements engines.Attempt.
func (a *attempt) Workspace() string { return a.spec.Workspace }

// Mounted implements engines.Attempt.
func (a *attempt) Mounted(target string) string { return target }

// Home implements engines.Attempt.
func (a *attempt) Home() string { return home }

// start makes the folder and starts the sandbox. When it returns nil, boot runs.
func (a *attempt) start() error {
	if err := os.RemoveAll(a.dir); err != nil {
		return fmt.Errorf("remove what was left: %w", err)
	}
	if err := os.MkdirAll(runDir(a.dir), 0o700); err != nil {
		return err
	}
	if err := a.e.bundle(a.dir, a.view, a.spec, a.bounds); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	started := make(chan error)
	go a.boot(started)
	return <-started
}

// boot starts runsc run and stays until nothing of it is left. It keeps its thread, because the kernel ends the
// process when the thread that started it ends.
func (a *attempt) boot(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var said tail
	created, speak, ask, cmd, err := a.launch(&said)
	if err != nil {
		started <- err
		return
	}
	defer created.Close()
	defer speak.Close()
	defer ask.Close()
	a.mu.Lock()
	a.main, a.ask = cmd.Process, ask
	a.mu.Unlock()
	started <- nil

	var listen sync.WaitGroup
	watching, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	listen.Go(func() {
		if pid, err := readPID(created); err == nil {
			a.prepare()
			a.watch(watching, pid)
		}
	})
	listen.Go(func() { a.listen(speak) })
	slow := time.AfterFunc(a.e.cfg.BootTimeout, func() {
		select {
		case <-a.up:
		default:
			a.end(fmt.Errorf("the sandbox was not up after %s", a.e.cfg.BootTimeout), "")
		}
	})
	waited := cmd.Wait()
	slow.Stop()
	unwatch()
	a.end(fmt.Errorf("runsc run: %w; it said: %s", orDone(waited), said.String()), "")
	listen.Wait()
	reap, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	if err := killAll(reap, a.dir); err != nil {
		a.e.cfg.Log.Error("a sandbox did not end", "attempt", a.spec.ID, "error", err)
	}
	if s := a.unused(); s != nil {
		<-s.done
	}
	close(a.gone)
}

// readPID takes the sandbox's process id, which gVisor writes in one piece.
func readPID(from io.Reader) (int, error) {
	var text [16]byte
	n, err := from.Read(text[:])
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text[:n]))
}

// launch starts runsc run. From created comes the sandbox's process id once it exists; from speak what the guest's
// init says; into ask goes what it is asked.
func (a *attempt) launch(said *tail) (created, speak, ask *os.File, cmd *exec.Cmd, err error) {
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	failed := func(what string, err error) (*os.File, *os.File, *os.File, *exec.Cmd, error) {
		for _, f := range ours {
			f.Close()
		}
		return nil, nil, nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return failed("make a pipe", err)
		}
		if i == 2 {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	cmd = a.e.runsc(a.dir, "run", "--bundle="+a.dir, "--pid-file=/proc/self/fd/3", containerID)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = theirs[2], theirs[1], said, theirs[:1]
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return failed("start runsc", err)
	}
	return ours[0], ours[1], ours[2], cmd, nil
}

// listen waits for the first line of the guest's init, hands on its answers, and returns when the pipe's other end is
// closed everywhere, which means that the sandbox process has ended.
func (a *attempt) listen(speak *os.File) {
	r := bufio.NewReaderSize(speak, 4<<10)
	if line, err := r.ReadString('\n'); err != nil || line != "up\n" {
		return
	}
	close(a.up)
	a.answers(r)
}

// prepare starts a runsc exec ahead of its command, which hides the start of that process from the step.
func (a *attempt) prepare() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.next != nil {
		return
	}
	s, err := a.newSession()
	if err != nil {
		a.e.cfg.Log.Warn("could not prepare a command ahead", "attempt", a.spec.ID, "error", err)
		return // take tries again and returns the error
	}
	a.next = s
}

// take returns a session for a command.
func (a *attempt) take() (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil, engines.ErrOver
	}
	if s := a.next; s != nil {
		a.next = nil
		return s, nil
	}
	return a.newSession()
}

// end kills the sandbox, once. The first caller's reason stays: a Killed for a wanted end, otherwise a fault.
func (a *attempt) end(fault error, why engines.Killed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.over, a.fault, a.why = true, fault, why
	if a.main != nil {
		_ = a.main.Kill() // it may have ended already, which is what is wanted; the kernel then ends the sandbox
	}
	if a.next != nil {
		a.next.abandon()
	}
}

// unused is the session that end has abandoned, or nil.
func (a *attempt) unused() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

// ended says why the attempt is over. Only meaningful after end.
func (a *attempt) ended() (engines.Killed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why, a.fault
}

// Close implements engines.Attempt.
func (a *attempt) Close(ctx context.Context) error {
	a.end(engines.ErrOver, engines.KilledCancel)
	select {
	case <-a.gone:
	case <-ctx.Done():
		return engines.Fault("the sandbox is still being removed", fmt.Errorf("close attempt %s: %w", a.spec.ID, ctx.Err()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removed {
		return nil
	}
	if err := os.RemoveAll(a.dir); err != nil {
		return engines.Fault("the sandbox's files could not be removed", fmt.Errorf("close attempt %s: %w", a.spec.ID, err))
	}
	a.removed = true
	a.release()
	a.e.forget(a.spec.ID)
	return nil
}

// orDone makes a process that ended well an error too, for one that should not have ended.
func orDone(err error) error {
	var exit *exec.ExitError
	if err == nil {
		return errors.New("ended by itself")
	}
	if errors.As(err, &exit) {
		return errors.New(exit.String())
	}
	return err
}
