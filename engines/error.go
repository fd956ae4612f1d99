package engines

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrOver refuses a command for an attempt that was closed, or stopped by a timeout or a cancel.
	ErrOver = errors.New("engines: the attempt is over")
	// ErrUnknownImage refuses an image that the engine does not have.
	ErrUnknownImage = errors.New("engines: unknown image")
	// ErrBadSpec refuses a Spec or Command that breaks the contract: the caller is at fault.
	ErrBadSpec = errors.New("engines: bad spec")
	// ErrUnavailable says that the engine cannot run on this machine as it is set up.
	ErrUnavailable = errors.New("engines: engine unavailable")
)

// Error is a fault of the machinery. Public may be shown to anyone: it is one sentence that names no path,
// address or account of the server, with the fix where there is one. Err is the detail for the operator.
type Error struct {
	Public string
	Err    error
}

// Error is the operator's view: the public sentence and the detail.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Public
	}
	return e.Public + ": " + e.Err.Error()
}

// Unwrap makes errors.Is and errors.As see the detail.
func (e *Error) Unwrap() error { return e.Err }

// Fault makes an Error out of a public sentence and an operator's detail.
func Fault(public string, err error) error { return &Error{Public: public, Err: err} }

// Public is the sentence of err that anyone may see. An error that carries none becomes a general one.
func Public(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Public
	}
	return "the machine that runs this workflow had a fault"
}

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })

// shellPattern is the name of a program, or its path.
var shellPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/?[A-Za-z0-9_][A-Za-z0-9._+/-]{0,99}$`) })

// Argv is how the command is started by a shell of that name.
func (c Command) Argv(shell string) []string {
	if shell == "bash" || shell == "sh" {
		return []string{shell, "-c", c.Script}
	}
	// One that is not there is then the job's error, told in its output with the shell's own exit code.
	return []string{"sh", "-c", `exec "$0" -c "$1"`, shell, c.Script}
}

// bound on lines of environment and their size, so that a Spec cannot exceed what execve takes.
const maxEnvBytes = 1 << 20

// Check refuses a Spec that no engine could open. Engines call it first; it does not look at the disk.
func (s Spec) Check() error {
	if !idPattern().MatchString(s.ID) {
		return badSpec("attempt id %q must match %s", s.ID, idPattern())
	}
	if s.Workspace != "" && !cleanAbs(s.Workspace) {
		return badSpec("workspace %q is not a clean absolute path below /", s.Workspace)
	}
	if s.Limits.Memory < 0 || s.Limits.Pids < 0 {
		return badSpec("a limit is negative")
	}
	for _, m := range s.Mounts {
		if !cleanAbs(m.Source) || !cleanAbs(m.Target) {
			return badSpec("mount %q at %q: both must be clean absolute paths below /", m.Source, m.Target)
		}
	}
	return checkEnv(s.Env)
}

// Check refuses a Command that no engine could run.
func (c Command) Check() error {
	if c.Shell != "" && !shellPattern().MatchString(c.Shell) {
		return badSpec("shell %q does not match %s", c.Shell, shellPattern())
	}
	if strings.ContainsRune(c.Script, 0) {
		return badSpec("the script holds a zero byte")
	}
	if len(c.Script) > 128<<10-1 {
		return badSpec("the script is longer than 128 KiB, more than one argument may hold")
	}
	if c.Dir != "" && c.Dir != "/" && !cleanAbs(c.Dir) {
		return badSpec("directory %q is not a clean absolute path", c.Dir)
	}
	if len(c.Files) > MaxFiles {
		return badSpec("%d files to write; there may be %d", len(c.Files), MaxFiles)
	}
	for _, dir := range c.Path {
		if !cleanAbs(dir) || strings.ContainsRune(dir, ':') {
			return badSpec("folder %q of PATH is not a clean absolute path", dir)
		}
	}
	if c.Timeout < 0 {
		return badSpec("the timeout is negative")
	}
	return checkEnv(c.Env)
}

func checkEnv(env []string) error {
	n := 0
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return badSpec("a variable is not NAME=value") // the line itself may be a secret
		}
		n += len(kv) + 1
	}
	if n > maxEnvBytes {
		return badSpec("the environment is larger than 1 MiB")
	}
	return nil
}

// cleanAbs says that p is absolute, not the root, and free of empty, "." and ".." parts.
func cleanAbs(p string) bool {
	if len(p) < 2 || p[0] != '/' || strings.ContainsRune(p, 0) {
		return false
	}
	for _, part := range strings.Split(p[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func badSpec(format string, args ...any) error {
	return Fault("the workflow asked its machine for something it cannot have", fmt.Errorf("%w: "+format, append([]any{ErrBadSpec}, args...)...))
}
