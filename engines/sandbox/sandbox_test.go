package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/engines"
	"spindle/engines/enginetest"
	"spindle/engines/sandbox"
	"spindle/engines/sandbox/sandboxtest"
)

// envServer makes the test binary a server that is going to die; see TestT43ServerDies.
const envServer = "SPINDLE_TEST_SERVER_STATE"

func TestMain(m *testing.M) {
	if state := os.Getenv(envServer); state != "" {
		serve(state)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	var state string
	e := sandboxtest.New(t, func(c *sandbox.Config) { state = c.StateDir })
	enginetest.Run(t, enginetest.Suite{Engine: e, Machine: true, Left: func() ([]string, error) { return left(state) }})
}

// left lists processes, files and mounts that belong to attempts in the state folder.
func left(state string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(state, "a", "*"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, state) {
			files = append(files, line)
		}
	}
	procs, err := processes(state)
	return append(files, procs...), err
}

// processes lists the command lines that have the state folder as gVisor's.
func processes(state string) ([]string, error) {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), "--root="+state+"/") {
			found = append(found, filepath.Dir(p)+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found, err
}

var ids atomic.Int64

func open(t *testing.T, e *sandbox.Engine, s engines.Spec) engines.Attempt {
	t.Helper()
	s.ID = fmt.Sprintf("test-%d", ids.Add(1))
	a, err := e.Open(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

// serve is a server with a command that runs in a sandbox until it is killed.
func serve(state string) {
	e, err := sandbox.New(sandbox.Config{Runsc: os.Getenv(sandboxtest.EnvRunsc), StateDir: state})
	if err == nil {
		var a engines.Attempt
		if a, err = e.Open(context.Background(), engines.Spec{ID: "dying"}); err == nil {
			_, err = a.Run(context.Background(), engines.Command{Script: "setsid sleep 1000 & echo up; sleep 1000", Stdout: os.Stdout})
		}
	}
	fmt.Println("the server should have been killed:", err)
}

// TestT43ServerDies: a server that is killed takes its sandboxes with it, and the next one removes their files.
func TestT43ServerDies(t *testing.T) {
	t.Parallel()
	var state string
	e := sandboxtest.New(t, func(c *sandbox.Config) { state = c.StateDir })
	kept := open(t, e, engines.Spec{})
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), envServer+"="+state, sandboxtest.EnvRunsc+"="+sandboxtest.Runsc(t))
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	require.NoError(t, server.Process.Kill())
	require.Error(t, server.Wait())

	res, err := kept.Run(t.Context(), engines.Command{Script: "true"})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	mine, err := processes(state)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := processes(state)
		return err == nil && len(now) <= 4 // runsc run, gofer, sandbox and the waiting exec of the attempt that is kept
	}, 20*time.Second, 10*time.Millisecond, "%v", mine)
	require.NoError(t, e.Sweep(t.Context()))
	files, err := filepath.Glob(filepath.Join(state, "a", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "what is open is kept, the rest is gone")
	res, err = kept.Run(t.Context(), engines.Command{Script: "true"})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
}

// TestSecretsStayInside: variables of a command are on no command line and in no file of the machine.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	var state string
	e := sandboxtest.New(t, func(c *sandbox.Config) { state = c.StateDir })
	const secret = "s3cr3t-of-the-job"
	a := open(t, e, engines.Spec{Env: []string{"FROM_SPEC=" + secret}})
	up, seen := make(chan struct{}), false
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.Run(ctx, engines.Command{Script: "echo $FROM_SPEC-up; sleep 100", Env: []string{"TOKEN=" + secret}, Stdout: writer(func(b []byte) {
			if !seen {
				seen = true
				close(up)
			}
		})})
	}()
	<-up
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range procs {
		line, _ := os.ReadFile(p) // a process may have ended
		require.NotContains(t, string(line), secret, p)
		if strings.Contains(string(line), "--root="+state) {
			env, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ"))
			require.NotContains(t, string(env), secret, p)
			require.NotContains(t, string(env), "SPINDLE_", "the server's own variables")
		}
	}
	require.NoError(t, filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, _ := os.ReadFile(path)
			require.NotContains(t, string(b), secret, path)
		}
		return err
	}))
	cancel()
	<-done
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
