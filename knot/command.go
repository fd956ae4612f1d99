package knot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxStderr    = 16 << 10              // git's messages that are kept, from the end
	killDelay    = 2 * time.Second       // after the kill, how long pipes may stay open
	sampleEvery  = 20 * time.Millisecond // how often the size of a running fetch is looked at
	addressSpace = uint64(4 << 30)       // RLIMIT_AS of git: a bound on what a hostile pack may make it allocate
)

// command is one run of git. Args follow the fixed options of Git.argv; they never hold a secret, since
// every user of the machine can read arguments.
type command struct {
	op     string   // for errors
	dir    string   // the bare repository (--git-dir); empty for none
	config []string // more -c options, key=value
	args   []string
	stdin  io.Reader
	maxOut int64 // how much standard output is read; more is ErrTooLarge

	net   *network // nil: the command may not reach the network
	watch string   // directory whose growth is bounded by grow; empty: none
	grow  int64    // bytes that watch may grow by
}

// network is what a fetching command may use.
type network struct {
	proxy  string // URL with a credential: a secret
	http   bool   // plain http as well
	stall  time.Duration
	helper string // value of protocol.allow lists: "https" or "https:http"
}

// fixed lists the options that each git command gets. None of them depends on input.
func fixed() []string {
	return []string{
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.sshCommand=false", "core.askPass=false",
		"core.fsync=none", // the repositories here are a cache, and a broken one is fetched again
		"core.packedGitWindowSize=16m", "core.packedGitLimit=256m", "core.bigFileThreshold=4m",
		"credential.helper=", "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false",
		"fetch.recurseSubmodules=false", "fetch.writeCommitGraph=false", "fetch.fsckObjects=false",
		"fetch.unpackLimit=1", "pack.threads=1", "transfer.bundleURI=false", "safe.bareRepository=all",
		"filter.lfs.smudge=", "filter.lfs.process=", "filter.lfs.required=false",
		"advice.detachedHead=false", "log.showSignature=false",
		"protocol.version=2", "protocol.allow=never",
	}
}

// argv builds the whole argument list.
func (c command) argv() []string {
	var out []string
	if c.dir != "" {
		out = append(out, "--git-dir="+c.dir)
	}
	out = append(out, "--no-pager", "--no-replace-objects", "--literal-pathspecs")
	conf := fixed()
	if c.net != nil {
		s := strconv.Itoa(max(1, int(c.net.stall.Seconds())))
		conf = append(conf, "protocol.https.allow=always", "http.followRedirects=false", "http.sslVerify=true",
			"http.lowSpeedLimit=1000", "http.lowSpeedTime="+s, "http.maxRequests=1",
			"http.userAgent=git/spindle", "http.proxyAuthMethod=basic")
		if c.net.http {
			conf = append(conf, "protocol.http.allow=always")
		}
	}
	for _, kv := range append(conf, c.config...) {
		out = append(out, "-c", kv)
	}
	return append(out, c.args...)
}

// env builds the whole environment; nothing of our own is handed on. The proxy's URL goes this way since
// the environment of a process is private and its arguments are not.
func (c command) env() []string {
	out := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "SSH_ASKPASS=false", "GIT_SSH_COMMAND=false",
		"GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_PROTOCOL_FROM_USER=0",
	}
	if c.net == nil {
		return append(out, "GIT_ALLOW_PROTOCOL=none")
	}
	out = append(out, "GIT_ALLOW_PROTOCOL="+c.net.helper)
	if c.net.proxy != "" {
		out = append(out, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.proxy", "GIT_CONFIG_VALUE_0="+c.net.proxy)
	}
	return out
}

// prepare makes the process: own process group, killed as a whole when ctx ends. The caller must be locked to its
// thread from before it starts the process until it has waited for it.
func (g *Git) prepare(ctx context.Context, c command) (*exec.Cmd, *tail) {
	cmd := exec.CommandContext(ctx, g.path, c.argv()...)
	cmd.Env = c.env()
	cmd.Dir = "/"
	// The kernel ends git with us, however we end. It goes by the thread that started git, so whoever starts it
	// stays on that thread until git has ended (runtime.LockOSThread). What git
	// itself started has its connection through our proxy, and its pipes to git: it ends when they break.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = killDelay
	errs := &tail{max: maxStderr}
	cmd.Stderr = errs
	return cmd, errs
}

// run runs c to its end and returns its standard output. The error is a *GitError, or the context's.
func (g *Git) run(ctx context.Context, c command) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, errs := g.prepare(ctx, c)
	cmd.Stdin = c.stdin
	out := &capped{max: c.maxOut, over: func() { cancel(ErrTooLarge) }}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		return nil, &GitError{Op: c.op, Kind: ErrGitMissing, Detail: lastWords(err.Error())}
	}
	g.bound(cmd.Process.Pid, c)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.sample(ctx, func() { cancel(ErrTooLarge) })
	}()
	err := cmd.Wait()
	cause := context.Cause(ctx)
	cancel(nil)
	<-watched
	return out.Bytes(), g.verdict(c, err, cause, errs.String())
}

// verdict turns the end of a process into an error: first what we did to it, then what it said.
func (g *Git) verdict(c command, err, cause error, stderr string) error {
	switch {
	case errors.Is(cause, ErrTooLarge):
		return &GitError{Op: c.op, Kind: ErrTooLarge}
	case errors.Is(cause, context.DeadlineExceeded):
		return &GitError{Op: c.op, Kind: ErrTimeout, Detail: lastWords(stderr)}
	case cause != nil:
		return fmt.Errorf("git %s: %w", c.op, cause)
	case err == nil:
		return nil
	}
	ge := g.classify(c.op, stderr, c.net != nil)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		ge.exit = exit.ExitCode()
	}
	return ge
}

// bound sets the limits that the kernel keeps for git and its children. A child that git made in the
// moment before has none; the sampling in sample holds for those.
func (g *Git) bound(pid int, c command) {
	as := unix.Rlimit{Cur: addressSpace, Max: addressSpace}
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &as, nil) // fails if git has ended already
	core := unix.Rlimit{}
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &core, nil)
	if c.watch != "" {
		size := unix.Rlimit{Cur: uint64(c.grow) + 1<<20, Max: uint64(c.grow) + 1<<20}
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &size, nil)
	}
}

// sample watches the growth of c.watch until ctx ends and calls over once it is too much.
func (c command) sample(ctx context.Context, over func()) {
	if c.watch == "" {
		return
	}
	before := dirSize(c.watch)
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if dirSize(c.watch)-before > c.grow {
				over()
				return
			}
		}
	}
}

// dirSize is the sum of the sizes of the regular files below dir; what cannot be read counts nothing.
func dirSize(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // files come and go while git writes
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// killGroup kills the process group that p leads.
func killGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// capped keeps up to max bytes and calls over at the first byte more.
type capped struct {
	bytes.Buffer
	max  int64
	over func()
}

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	if int64(c.Len()+len(p)) > c.max {
		c.over()
		return 0, io.ErrShortWrite
	}
	return c.Buffer.Write(p)
}

// tail keeps the last max bytes written.
type tail struct {
	buf []byte
	max int
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - t.max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string { return string(t.buf) }
