package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"spindle/desk"
	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/engines/plain"
	"spindle/internal/clock"
	"spindle/pipeline"
)

// machine makes the engines of this machine and the folder of the run. done ends and removes both.
func (r *runner) machine(c *cli.Command, o *desk.Options) (done func(), err error) {
	dir, err := os.MkdirTemp("", "spindle-run-") // short, since names of sockets have a limit
	if err != nil {
		return nil, fail(exitEnv, fmt.Errorf("make a folder for the run: %w", err))
	}
	o.Dir = dir
	done = func() { removeAll(dir) }
	if err := r.engines(c, o, dir, &done); err != nil {
		done()
		return nil, err
	}
	if c.Bool("shell-on-failure") {
		o.Shell = r.shell
	}
	return done, nil
}

// engines makes the engines of this machine below dir.
func (r *runner) engines(c *cli.Command, o *desk.Options, dir string, done *func()) error {
	o.Missing = map[string]string{"microvm": "it is part of another version", "nixery": "it is part of another version"}
	if o.Isolated {
		box, err := newSandbox(filepath.Join(dir, "s"))
		if err != nil {
			return fail(exitEnv, err)
		}
		o.Engines = append(o.Engines, box)
	} else {
		keep, err := keepIn(c.String("keep"))
		if err != nil {
			return fail(exitEnv, err)
		}
		work := filepath.Join(dir, "w")
		if keep != "" {
			work = filepath.Join(keep, ".work") // of the same file system, so that it can be moved
			*done = func() { removeAll(work); removeAll(dir) }
		}
		e, err := plain.New(plain.Config{
			Keep: keep, Dir: work, Home: value(r.environ, "HOME"), Env: r.ownEnv(), Workspace: workspace(o), Clock: clock.Real{},
		})
		if err != nil {
			return fail(exitEnv, err)
		}
		o.Engines = append(o.Engines, e)
	}
	o.Engines = append(o.Engines, dummy.New(dummy.Config{}))
	return nil
}

// keepIn makes the folder in which copies are kept.
func keepIn(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return abs, os.MkdirAll(abs, 0o755)
}

// workspace is the tree itself, where it is to be worked in.
func workspace(o *desk.Options) string {
	if o.InPlace {
		return o.Repo.Top
	}
	return ""
}

// ownEnv is what plain processes get of the person's environment: enough for the tools to be found and to speak the
// person's language, and nothing that may be a secret.
func (r *runner) ownEnv() []string {
	var out []string
	for _, kv := range r.environ {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "TMPDIR", "GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS",
			"CARGO_HOME", "RUSTUP_HOME", "NIX_PATH", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
			"http_proxy", "https_proxy", "no_proxy":
			out = append(out, kv)
		}
	}
	return out
}

// shell opens a shell where a step failed.
func (r *runner) shell(ctx context.Context, name string, m engines.Attempt, c engines.Command, s pipeline.Step) error {
	sh, ok := m.(interface {
		Shell(ctx context.Context, c engines.Command, in, out *os.File) error
	})
	out, isFile := r.stdout.(*os.File)
	if !ok || !isFile {
		return errors.New("this machine has no shell to open")
	}
	fmt.Fprintf(out, "%s: step %q did not pass. This is its shell, in its folder and with its variables; `exit` goes on.\n", name, s.Name)
	return sh.Shell(ctx, c, r.stdin, out)
}

// secretName is what a secret may be called.
var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// secrets reads the values of secrets: from the file, the environment, or the person. Never from the command line, which
// every user of the machine can read.
func (r *runner) secrets(c *cli.Command) (map[string]string, error) {
	out := map[string]string{}
	if f := c.String("secrets-file"); f != "" {
		if err := r.readSecrets(f, out); err != nil {
			return nil, err
		}
	}
	for _, n := range c.StringSlice("secret") {
		if strings.Contains(n, "=") {
			return nil, fail(exitUsage, errors.New("--secret takes a name alone: a value on the command line can be read by everybody on this machine; put it into the environment, or into a file for --secrets-file"))
		}
		if !secretName().MatchString(n) {
			return nil, fail(exitUsage, fmt.Errorf("--secret %q cannot name a variable: use letters, digits and _", clipped(n)))
		}
		if v := value(r.environ, n); v != "" {
			out[n] = v
			continue
		}
		if !r.onTerminal() {
			return nil, fail(exitUsage, fmt.Errorf("the secret %s is not in the environment, and there is no terminal to ask on", n))
		}
		v, err := r.ask(n)
		if err != nil {
			return nil, fail(exitEnv, err)
		}
		out[n] = v
	}
	return out, nil
}

// readSecrets reads a file of NAME=VALUE lines, as .env files have them: # begins a comment, quotes may be around a value.
func (r *runner) readSecrets(name string, out map[string]string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, err)
	}
	if err != nil {
		return fail(exitEnv, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(r.stderr, "spindle: warning: others can read %s; chmod 600 %s\n", name, shellWord(name))
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 256<<10)
	for n := 1; lines.Scan(); n++ {
		l := strings.TrimSpace(lines.Text())
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		k, v, ok := strings.Cut(strings.TrimPrefix(l, "export "), "=")
		k = strings.TrimSpace(k)
		if !ok || !secretName().MatchString(k) {
			return fail(exitUsage, fmt.Errorf("%s, line %d: write NAME=VALUE", name, n)) // the line may be a secret
		}
		v = strings.TrimSpace(v)
		switch {
		case len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"':
			v = strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\\`, `\`).Replace(v[1 : len(v)-1])
		case len(v) >= 2 && v[0] == '\'' && v[len(v)-1] == '\'':
			v = v[1 : len(v)-1]
		}
		out[k] = v
	}
	if err := lines.Err(); err != nil {
		return fail(exitUsage, fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// ask asks for a value without showing it.
func (r *runner) ask(name string) (string, error) {
	fd := int(r.stdin.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", fmt.Errorf("ask for a secret: %w", err)
	}
	quiet := *was
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return "", fmt.Errorf("ask for a secret: %w", err)
	}
	defer func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, was) // there is nothing else to do about it
		fmt.Fprintln(r.stderr)
	}()
	fmt.Fprintf(r.stderr, "value of %s: ", name)
	line, err := bufio.NewReader(r.stdin).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read the value of %s: %w", name, err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// columns is the width of a terminal; 80 where it does not say.
func columns(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 {
		return 80
	}
	return int(ws.Col)
}

// removeAll removes a folder in which tools may have made folders read-only.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir) // what is left lies in the folder for temporary files
}

// watchEvery is how often the tree is looked at, and watchQuiet how long it must have been still.
const (
	watchEvery = 300 * time.Millisecond
	watchQuiet = 200 * time.Millisecond
)

// watch runs again and again. A change while a run goes on ends that run first.
func (r *runner) watch(ctx context.Context, c *cli.Command) error {
	repo, err := desk.Find(ctx, c.String("directory"))
	if err != nil {
		return fail(exitEnv, err)
	}
	for {
		before, err := repo.Fingerprint(ctx)
		if err != nil {
			return fail(exitEnv, err)
		}
		run, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- r.once(run, c) }()
		waiting := false
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				cancel()
				if !waiting {
					return <-ended
				}
				return fail(exitCancelled, errors.New("watching was ended"))
			case err := <-ended:
				waiting = true
				if err != nil && err.Error() != "" {
					fmt.Fprintf(r.stderr, "spindle: %v\n", err)
				}
				fmt.Fprintf(r.stderr, "spindle: watching %s; Ctrl-C ends\n", repo.Top)
			case <-time.After(watchEvery):
				now, err := repo.Fingerprint(ctx)
				changed = err == nil && now != before
			}
		}
		cancel()
		if !waiting {
			<-ended
		}
		select {
		case <-time.After(watchQuiet):
		case <-ctx.Done():
		}
	}
}
