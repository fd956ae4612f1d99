package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"spindle/engines"
)

// Run implements engines.Attempt.
func (a *attempt) Run(ctx context.Context, c engines.Command) (engines.Result, error) {
	if err := c.Check(); err != nil {
		return engines.Result{}, err
	}
	select {
	case <-a.turn:
		defer func() { a.turn <- struct{}{} }()
	case <-ctx.Done():
		return a.cancelled()
	}
	select {
	case <-a.up:
	case <-a.gone:
	case <-ctx.Done():
		return a.cancelled()
	}
	if c.Shell == "bash" && !a.view.bash && !a.isOver() {
		return a.noBash(c), nil
	}
	s, err := a.take()
	if errors.Is(err, engines.ErrOver) {
		return engines.Result{}, a.refusal()
	}
	if err != nil {
		return engines.Result{}, engines.Fault("the command could not be started in its sandbox", err)
	}
	return a.run(ctx, s, c)
}

// noBash is what a shell says of a program that is not there: the image is the job's choice.
func (a *attempt) noBash(c engines.Command) engines.Result {
	if c.Stderr != nil {
		_, _ = fmt.Fprintln(c.Stderr, "bash: not found in this image; use `shell: sh`, or an image that has it") // the exit code says it too
	}
	now := a.e.cfg.Clock.Now()
	return engines.Result{ExitCode: 127, Started: now, Ended: now}
}

// run executes c in s, which it uses up.
func (a *attempt) run(ctx context.Context, s *session, c engines.Command) (engines.Result, error) {
	limit := ctx
	if c.Timeout > 0 {
		var stop context.CancelFunc
		limit, stop = context.WithTimeout(ctx, c.Timeout)
		defer stop()
	}
	res := engines.Result{Started: a.e.cfg.Clock.Now()}
	stdout, stderr := engines.NewPump(s.out, c.Stdout), engines.NewPump(s.err, c.Stderr)
	sendErr := s.send(a.guestProcess(c))

	select {
	case <-s.done:
	case <-a.gone:
	case <-limit.Done():
		if ctx.Err() != nil {
			a.end(ctx.Err(), engines.KilledCancel)
		} else {
			a.end(limit.Err(), engines.KilledTimeout)
		}
	}
	if a.isOver() {
		<-a.gone
		s.kill()
	}
	res.Ended = a.e.cfg.Clock.Now()
	writeErr := engines.Finish(stdout, stderr)

	if a.isOver() {
		return a.overResult(res)
	}
	err := s.failure()
	if err != nil {
		return a.notStarted(ctx, c, res, errors.Join(err, sendErr))
	}
	a.prepare()
	res.ExitCode = s.code
	if len(c.Files) > 0 {
		if res.Files, err = a.collect(ctx, c.Files); err != nil {
			return a.uncollected(ctx, res, err)
		}
	}
	if writeErr != nil {
		return res, engines.Fault("the output could not be stored", fmt.Errorf("write the output of attempt %s: %w", a.spec.ID, writeErr))
	}
	return res, nil
}

// overResult completes the result of a command whose sandbox has ended before it.
func (a *attempt) overResult(res engines.Result) (engines.Result, error) {
	why, fault := a.ended()
	res.Killed, res.ExitCode = why, -1
	if why == "" {
		return res, engines.Fault("the sandbox ended while the command ran", fault)
	}
	return res, nil
}

// notStarted tells the job's failures from the machinery's after a command could not be started: the sandbox may have
// ended, and the job may have removed the folder.
func (a *attempt) notStarted(ctx context.Context, c engines.Command, res engines.Result, fault error) (engines.Result, error) {
	missing, err := a.dirIsMissing(ctx, c)
	if a.isOver() {
		<-a.gone
		return a.overResult(res)
	}
	if !missing || err != nil {
		return res, engines.Fault("the command could not be started in its sandbox", errors.Join(fault, err))
	}
	res.ExitCode = 1 // what a shell's failed cd gives
	if c.Stderr != nil {
		_, _ = fmt.Fprintf(c.Stderr, "cd: %s: No such file or directory\n", a.dirOf(c)) // the exit code says it too
	}
	return res, nil
}

// dirIsMissing asks the sandbox whether a command's folder is there.
func (a *attempt) dirIsMissing(ctx context.Context, c engines.Command) (bool, error) {
	s, err := a.take()
	if err != nil {
		return false, err
	}
	env := []string{"PATH=" + a.view.path}
	stdout, stderr := engines.NewPump(s.out, nil), engines.NewPump(s.err, nil)
	sendErr := s.send(a.view.process([]string{"/bin/sh", "-c", `[ -d "$0" ]`, a.dirOf(c)}, "/", env, true))
	select {
	case <-s.done:
	case <-a.gone:
	case <-ctx.Done():
		a.end(ctx.Err(), engines.KilledCancel)
		<-a.gone
	}
	s.kill()
	if err := errors.Join(sendErr, engines.Finish(stdout, stderr), s.failure()); err != nil {
		a.settle()
		return false, err
	}
	return s.code == 1, nil
}

// settle waits for the end of a sandbox to be noticed, when a command could not be started for no good reason.
func (a *attempt) settle() {
	select {
	case <-a.gone:
	case <-time.After(settleTime):
	}
}

// settleTime is how long runsc run may take to see that its sandbox has ended.
const settleTime = time.Second

func (a *attempt) dirOf(c engines.Command) string {
	if c.Dir != "" {
		return c.Dir
	}
	return a.spec.Workspace
}

// cancelled ends an attempt whose caller does not wait for it any more.
func (a *attempt) cancelled() (engines.Result, error) {
	now := a.e.cfg.Clock.Now()
	a.end(context.Canceled, engines.KilledCancel)
	<-a.gone
	return a.overResult(engines.Result{Started: now, Ended: a.e.cfg.Clock.Now()})
}

// refusal is the error for a command that comes after the end.
func (a *attempt) refusal() error {
	why, fault := a.ended()
	if why != "" {
		return engines.Fault("the sandbox of this attempt has ended", fmt.Errorf("%w: %s", engines.ErrOver, why))
	}
	return engines.Fault("the sandbox could not be started", fmt.Errorf("%w: %w", engines.ErrOver, fault))
}

func (a *attempt) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// guestProcess describes c as gVisor takes it.
func (a *attempt) guestProcess(c engines.Command) *specs.Process {
	v := a.view
	shell := c.Shell
	if shell == "" {
		shell = "sh"
		if v.bash {
			shell = engines.DefaultShell
		}
	}
	path := strings.Join(append(slices.Clone(c.Path), v.path), ":")
	account := []string{"HOME=" + home, "USER=" + v.user, "LOGNAME=" + v.user}
	if c.AsRoot {
		account = []string{"HOME=/root", "USER=root", "LOGNAME=root"}
	}
	env := mergeEnv([]string{"PATH=" + path, "LANG=C.UTF-8"}, v.env, []string{"PATH=" + path}, account, a.spec.Env, c.Env, fileEnv(c.Files))
	return v.process(c.Argv(shell), a.dirOf(c), env, c.AsRoot)
}

// mergeEnv joins lists of NAME=value; a later one wins, and each name stays where it first stood.
func mergeEnv(lists ...[]string) []string {
	var merged []string
	at := map[string]int{}
	for _, list := range lists {
		for _, kv := range list {
			name, _, _ := strings.Cut(kv, "=")
			if i, ok := at[name]; ok {
				merged[i] = kv
				continue
			}
			at[name] = len(merged)
			merged = append(merged, kv)
		}
	}
	return merged
}

// reapTimeout bounds the wait for the kernel to end a killed process.
const reapTimeout = 20 * time.Second
