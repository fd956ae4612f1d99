package engines

import (
	"context"
	"io"
	"time"
)

// Defaults of a Spec, and the names that jobs may rely on in every engine with a file system.
const (
	// DefaultWorkspace is where a job's repository is.
	DefaultWorkspace = "/workspace/repo"
	// User is the name of the account that commands run as unless they ask for root. Its uid and gid are UserID.
	User = "spindle-workflow"
	// UserID is the numeric uid and gid of User inside an attempt.
	UserID = 1000
	// ImageHost is the image that shows the machine's own tools, read-only. The empty image means the same.
	ImageHost = "host"
	// DefaultShell runs a command that names no shell.
	DefaultShell = "bash"
)

// Engine is a kind of place where attempts run.
type Engine interface {
	// Name is the word that workflow files use for this engine.
	Name() string
	// Open prepares a private machine for one attempt. It may return before the machine is up: the first
	// Run waits for it. It refuses an unusable Spec at once. Whoever opens an attempt closes it.
	// Ending ctx later does not end the attempt.
	Open(ctx context.Context, s Spec) (Attempt, error)
}

// Attempt is one private machine. Its commands run one after another: Run calls of one attempt do not
// overlap (an engine serializes them), while different attempts run side by side. Close may be called at
// any time, from any goroutine.
type Attempt interface {
	// Run executes one command and returns when it has ended and its output has been handed over.
	// When ctx ends or c.Timeout passes, everything that runs in the attempt is killed at once and the
	// Result says so; that is not an error, and later commands are refused with ErrOver.
	// An error is always a fault of the machinery and can be read as *Error.
	Run(ctx context.Context, c Command) (Result, error)
	// Workspace is the guest path of the working directory that commands start in.
	Workspace() string
	// Home is the guest path of the home of User.
	Home() string
	// Mounted is the guest path at which a mount with that target is seen: target itself, but in engines whose
	// attempts have no file system of their own.
	Mounted(target string) string
	// Close kills what runs and removes everything that the attempt had. It may be called more than once;
	// when it returns nil, nothing of the attempt is left.
	Close(ctx context.Context) error
}

// Spec says what machine an attempt needs.
type Spec struct {
	// ID names the attempt for the operator, in logs and process lists. It must match [A-Za-z0-9._-]{1,64}
	// and be unique among the attempts that are open.
	ID string
	// Image is ImageHost or empty, or an image that the engine knows. Others are refused.
	Image string
	// Packages are what the attempt needs, by the registry that has them; those of a plain list are under "". Engines
	// that show the machine's own tools pass over them.
	Packages map[string][]string
	// Needs names what else the workflow asks of its machine, by the keys of the file. An engine refuses, by name,
	// what it does not have.
	Needs []string
	// Untrusted says that strangers decide what runs: nothing is done for the attempt with the server's credentials.
	Untrusted bool
	// Progress gets a line, without its end, whenever Open has something to tell to whoever waits. nil discards it.
	// It is called from one goroutine at a time, and not after Open has returned.
	Progress func(line string)
	// Mounts are files and folders of the server that the attempt may read.
	Mounts []Mount
	// Workspace is the guest path that commands start in. Empty means DefaultWorkspace. It is created
	// empty, writable and owned by User.
	Workspace string
	// Env is "NAME=value" lines that every command gets, before its own. The server's own environment is never handed in.
	Env []string
	// Limits bound the attempt as a whole.
	Limits Limits
}

// Mount shows a file or folder of the server at a path of the attempt. It is always read-only.
type Mount struct {
	// Source is an absolute path on the server. It must exist.
	Source string
	// Target is an absolute, clean guest path. Targets that hide the machine's own folders are refused.
	Target string
}

// Limits bound what an attempt may use. Zero means the engine's default, which may be no limit. What an
// engine can hold on a given machine is in its documentation.
type Limits struct {
	// Memory is in bytes and counts processes and files kept in memory.
	Memory int64
	// Pids is how many processes and threads may exist at a time.
	Pids int64
}

// Command is one thing to run in an attempt.
type Command struct {
	// Script is given to the shell as it is, with `-c`.
	Script string
	// Shell is the program that gets the script, with -c. Empty means DefaultShell, or "sh" where the image has no bash.
	Shell string
	// Env is "NAME=value" lines on top of the Spec's; a later line wins over an earlier one of the same name.
	Env []string
	// Dir is the guest path to start in. Empty means the workspace.
	Dir string
	// Stdout and Stderr get the output as it is produced. nil discards it. A writer is never called from
	// two goroutines at a time unless the same value is given for both. An error of a writer does not
	// stop the command; it is returned by Run as a fault of the machinery.
	Stdout, Stderr io.Writer
	// Timeout kills the command when it has passed. Zero means no limit of its own. It counts from the
	// command's start, not from the wait for the machine.
	Timeout time.Duration
	// Files are names of variables, at most MaxFiles. Each is set to the path of an empty file that the command may
	// write, and what it wrote is in the Result.
	Files []string
	// Path are guest folders that are looked at before the machine's own for programs.
	Path []string
	// AsRoot runs as the attempt's own root, which has no power outside the attempt.
	AsRoot bool
}

// Killed says why a command did not end by itself.
type Killed string

// The reasons for a kill. A command that ended by itself has the empty reason.
const (
	KilledTimeout Killed = "timeout"
	KilledCancel  Killed = "cancel"
	KilledMemory  Killed = "memory"
	KilledDisk    Killed = "disk"
)

// Result is how a command ended.
type Result struct {
	// ExitCode is the shell's: 0 to 255, and 128 plus the signal's number for one that died of a signal.
	// It is -1 when Killed is not empty.
	ExitCode int
	// Killed is empty when the command ended by itself.
	Killed Killed
	// Started is when the command was handed to the machine, after the wait for the machine itself.
	// Ended is when its process was gone. Both are by the server's clock.
	Started, Ended time.Time
	// Files is what the command wrote into its Files, by the names of their variables; of a file above FileBytes, one
	// byte more than that. What it left empty is not there, and neither is anything of a command that was killed.
	Files map[string][]byte
}

// Bounds of a Command's Files: how many there may be, and how much of each is read, in bytes.
const (
	MaxFiles  = 4
	FileBytes = 1 << 20
)
