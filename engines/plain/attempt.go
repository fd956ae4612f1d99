package plain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"spindle/engines"
)

// marker is the variable by which processes of an attempt are found.
const marker = "SPINDLE_PLAIN_ATTEMPT"

type attempt struct {
	e               *Engine
	spec            engines.Spec
	dir             string
	workspace, home string
	turn            chan struct{} // holds one token: whose turn it is to run

	mu     sync.Mutex
	over   bool
	closed chan struct{} // closed once the attempt is over
}

// Workspace implements engines.Attempt.
func (a *attempt) Workspace() string { return a.workspace }

// Home implements engines.Attempt.
func (a *attempt) Home() string { return a.home }

// Mounted implements engines.Attempt: what is mounted is where it always is.
func (a *attempt) Mounted(target string) string {
	for _, m := range a.spec.Mounts {
		if rest, ok := strings.CutPrefix(target, m.Target); ok && (rest == "" || rest[0] == '/') {
			return m.Source + rest
		}
	}
	return target
}

// file is the folder of commands' files, or of one of them.
func (a *attempt) file(i int) string { return filepath.Join(a.dir, "files", strconv.Itoa(i)) }

// Run implements engines.Attempt.
func (a *attempt) Run(ctx context.Context, c engines.Command) (engines.Result, error) {
	if err := c.Check(); err != nil {
		return engines.Result{}, err
	}
	if c.AsRoot {
		return engines.Result{}, engines.Fault("without isolation nothing runs as root", fmt.Errorf("%w: AsRoot", engines.ErrBadSpec))
	}
	select {
	case <-a.turn:
		defer func() { a.turn <- struct{}{} }()
	case <-a.closed:
	case <-ctx.Done():
	}
	select {
	case <-a.closed:
		return engines.Result{}, engines.Fault("the attempt has ended", engines.ErrOver)
	default:
	}
	if ctx.Err() != nil {
		now := a.e.c.Clock.Now()
		a.end()
		return engines.Result{ExitCode: -1, Killed: engines.KilledCancel, Started: now, Ended: now}, nil
	}
	return a.run(ctx, c)
}

// run executes c. It keeps its thread, because the kernel ends the process when the thread that started it ends.
func (a *attempt) run(ctx context.Context, c engines.Command) (engines.Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := a.emptyFiles(c.Files); err != nil {
		return engines.Result{}, engines.Fault("the files of the command could not be made", err)
	}
	res := engines.Result{Started: a.e.c.Clock.Now()}
	cmd, pumps, err := a.start(c)
	if errors.Is(err, os.ErrNotExist) {
		if _, serr := os.Stat(a.dirOf(c)); serr != nil {
			if c.Stderr != nil {
				_, _ = fmt.Fprintf(c.Stderr, "cd: %s: No such file or directory\n", a.dirOf(c)) // the exit code says it too
			}
			now := a.e.c.Clock.Now()
			return engines.Result{ExitCode: 1, Started: now, Ended: now}, nil
		}
	}
	if err != nil {
		return engines.Result{}, engines.Fault("the command could not be started", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	var limit <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		limit = t.C
	}
	select {
	case err = <-waited:
	case <-ctx.Done():
		res.Killed = engines.KilledCancel
	case <-a.closed:
		res.Killed = engines.KilledCancel
	case <-limit:
		res.Killed = engines.KilledTimeout
	}
	if res.Killed != "" {
		a.end()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
		a.killAll()
		<-waited
	}
	res.Ended = a.e.c.Clock.Now()
	writeErr := engines.Finish(pumps...)
	if res.Killed != "" {
		res.ExitCode = -1
		return res, nil
	}
	res.ExitCode = exitCode(cmd, err)
	if writeErr != nil {
		return res, engines.Fault("the output could not be stored", fmt.Errorf("write the output of attempt %s: %w", a.spec.ID, writeErr))
	}
	if res.Files, err = a.readFiles(c.Files); err != nil {
		return res, engines.Fault("what the command wrote for later ones could not be read", err)
	}
	return res, nil
}

// start starts c's shell with pipes for its output.
func (a *attempt) start(c engines.Command) (*exec.Cmd, []*engines.Pump, error) {
	shell := c.Shell
	if shell == "" {
		shell = "sh"
		if _, err := exec.LookPath(engines.DefaultShell); err == nil {
			shell = engines.DefaultShell
		}
	}
	argv := c.Argv(shell)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Dir: a.dirOf(c), Env: a.env(c)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var files [4]*os.File // reading and writing ends of stdout, then of stderr
	closeAll := func() {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	for i := 0; i < 4; i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			closeAll()
			return nil, nil, err
		}
	}
	cmd.Stdout, cmd.Stderr = files[1], files[3]
	if err := cmd.Start(); err != nil {
		closeAll()
		return nil, nil, err
	}
	files[1].Close()
	files[3].Close()
	return cmd, []*engines.Pump{engines.NewPump(files[0], c.Stdout), engines.NewPump(files[2], c.Stderr)}, nil
}

// Shell runs the shell on the terminal of the caller, in the state that the attempt is in, until it ends.
func (a *attempt) Shell(ctx context.Context, c engines.Command, in, out *os.File) error {
	cmd := exec.CommandContext(ctx, engines.DefaultShell, "-i")
	cmd.Dir, cmd.Env = a.dirOf(c), a.env(c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // how a person leaves a shell says nothing
	}
	return err
}

func (a *attempt) dirOf(c engines.Command) string {
	if c.Dir != "" {
		return c.Dir
	}
	return a.workspace
}

// env is what the command sees: the account's, the attempt's, the command's.
func (a *attempt) env(c engines.Command) []string {
	env := append([]string{}, a.e.c.Env...)
	env = append(env, "HOME="+a.home)
	env = append(append(env, a.spec.Env...), c.Env...)
	if len(c.Path) > 0 {
		env = append(env, "PATH="+strings.Join(append(append([]string{}, c.Path...), last(env, "PATH")), ":"))
	}
	for i, name := range c.Files {
		env = append(env, name+"="+a.file(i))
	}
	return append(env, marker+"="+a.dir)
}

// last is the value of a variable that counts.
func last(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func (a *attempt) emptyFiles(names []string) error {
	for i := range names {
		_ = os.RemoveAll(a.file(i)) // whatever a command put in its place
		if err := os.WriteFile(a.file(i), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) readFiles(names []string) (map[string][]byte, error) {
	var out map[string][]byte
	for i, name := range names {
		f, err := os.OpenFile(a.file(i), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue // the command removed it, or put something else there: it wrote nothing
		}
		b, err := io.ReadAll(io.LimitReader(f, engines.FileBytes+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if len(b) > 0 {
			if out == nil {
				out = map[string][]byte{}
			}
			out[name] = b
		}
	}
	return out, nil
}

// exitCode is the shell's: of one that died of a signal, 128 and the signal's number.
func exitCode(cmd *exec.Cmd, err error) int {
	if err == nil {
		return 0
	}
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.over = true
		close(a.closed)
	}
}

// Close implements engines.Attempt. It waits for a command that runs to stop.
func (a *attempt) Close(ctx context.Context) error {
	a.end()
	select {
	case <-a.turn:
		a.turn <- struct{}{}
	case <-ctx.Done():
		return engines.Fault("the attempt is still being stopped", ctx.Err())
	}
	a.killAll() // what commands left behind
	if keep := a.e.c.Keep; keep != "" && strings.HasPrefix(a.workspace, a.dir) {
		if err := os.Rename(a.workspace, filepath.Join(keep, a.spec.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return engines.Fault("the workspace could not be kept", err)
		}
	}
	// Caches of tools are often read-only, folders too.
	if err := os.RemoveAll(a.dir); err != nil {
		_ = filepath.WalkDir(a.dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(a.dir); err != nil {
			return engines.Fault("the attempt's files could not be removed", err)
		}
	}
	a.e.forget(a.spec.ID)
	return nil
}

// killAll ends the attempt's processes, again and again while new ones come.
func (a *attempt) killAll() {
	want := "\x00" + marker + "=" + a.dir + "\x00"
	for range 50 {
		found := false
		list, _ := os.ReadDir("/proc")
		for _, d := range list {
			pid, err := strconv.Atoi(d.Name())
			if err != nil {
				continue
			}
			env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
			if err == nil && strings.Contains("\x00"+string(env), want) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				found = true
			}
		}
		if !found {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
