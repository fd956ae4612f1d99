package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
)

// built is the one binary that the tests of this package run.
type built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// shared lives as long as the tests do, as does dying, which has the points at which it can be made to die.
var shared, dying built

func TestMain(m *testing.M) {
	code := m.Run()
	for _, x := range []*built{&shared, &dying} {
		if x.dir != "" {
			_ = os.RemoveAll(x.dir)
		}
	}
	os.Exit(code)
}

// binary builds spindle as the README says.
func binary(t testing.TB) string { return shared.build(t) }

func (x *built) build(t testing.TB, args ...string) string {
	t.Helper()
	x.once.Do(func() {
		if x.dir, x.err = os.MkdirTemp("", "spindle-binary-"); x.err != nil {
			return
		}
		x.path = filepath.Join(x.dir, "spindle")
		cmd := exec.Command("go", append(append([]string{"build"}, args...), "-o", x.path, ".")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			x.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	require.NoError(t, x.err)
	return x.path
}

// bed is a network with a place for one server.
type bed struct {
	t     *testing.T
	net   *devnet.Net
	alice *devnet.Account
	dir   string
	addr  string
	bin   string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, binary(t))
}

func newBedOf(t *testing.T, bin string) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), addr: freeAddr(t), bin: bin}
	var err error
	b.net, err = devnet.Start(t.Context(), devnet.Config{
		Dir: filepath.Join(b.dir, "network"), Spindles: map[string]string{world.Hostname: "http://" + b.addr},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.net.Close() })
	b.alice, err = b.net.CreateAccount(t.Context(), "alice.test")
	require.NoError(t, err)
	out, err := exec.Command(bin, "key", "generate", filepath.Join(b.dir, "key")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return b
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// environ is the environment of a server of this bed; more wins.
func (b *bed) environ(more ...string) []string {
	var hosts []string
	for name, addr := range b.net.Hosts() {
		hosts = append(hosts, name+":"+addr)
	}
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir,
		"SPINDLE_SERVER_HOSTNAME=" + world.Hostname, "SPINDLE_SERVER_OWNER=" + b.alice.DID.String(),
		"SPINDLE_SERVER_PUBLIC_URL=http://" + b.addr, "SPINDLE_SERVER_LISTEN_ADDR=" + b.addr,
		"SPINDLE_SERVER_METRICS_LISTEN_ADDR=127.0.0.1:0",
		"SPINDLE_SERVER_KEY_PATH=" + filepath.Join(b.dir, "key"), "SPINDLE_SERVER_DB_PATH=" + filepath.Join(b.dir, "spindle.db"),
		"SPINDLE_SERVER_REPO_DIR=" + filepath.Join(b.dir, "repos"), "SPINDLE_SERVER_LOG_DIR=" + filepath.Join(b.dir, "logs"),
		"SPINDLE_SERVER_STATE_DIR=" + filepath.Join(b.dir, "state"),
		"SPINDLE_SERVER_JETSTREAM_ENDPOINT=" + b.net.JetstreamURL(), "SPINDLE_SERVER_PLC_URL=" + b.net.PLCURL(),
		"SPINDLE_SERVER_DEV=true", "SPINDLE_SERVER_DEV_EXTRA_HOSTS=" + strings.Join(hosts, ","), "SPINDLE_ENGINE_DUMMY=true",
		"SPINDLE_DRAIN_TIMEOUT=1s",
	}, more...)
}

// server is a running `spindle serve`.
type server struct {
	cmd  *exec.Cmd
	said *speech
	done chan struct{}
}

// speech is what a process says, readable while it speaks.
type speech struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *speech) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *speech) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// serve starts a server and waits until it is ready.
func (b *bed) serve(more ...string) *server {
	b.t.Helper()
	s := b.start(more...)
	err := b.client(nil).Ready(b.t.Context())
	// It listens before it knows whether a sandbox can run here.
	require.Eventually(b.t, func() bool {
		return err != nil || cannotSandbox(s.said.String()) || strings.Contains(s.said.String(), "the sandbox works")
	}, time.Minute, 10*time.Millisecond)
	if cannotSandbox(s.said.String()) {
		b.t.Skip("no sandbox can run here: " + s.said.String())
	}
	require.NoError(b.t, err, "%s", s.said)
	return s
}

func (b *bed) start(more ...string) *server {
	b.t.Helper()
	s := &server{cmd: exec.Command(b.bin, "serve"), said: &speech{}, done: make(chan struct{})}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stderr, s.cmd.Stdout = b.environ(more...), b.dir, s.said, s.said
	require.NoError(b.t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	b.t.Cleanup(func() { s.kill() })
	return s
}

// kill ends the process without a word of warning.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// refused starts a server that must not come up, and returns what it said.
func (b *bed) refused(more ...string) (code int, said string) {
	b.t.Helper()
	s := b.start(more...)
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.kill()
		b.t.Fatalf("the server started:\n%s", s.said)
	}
	return s.cmd.ProcessState.ExitCode(), s.said.String()
}

func (b *bed) client(a *devnet.Account) *world.Client {
	return world.NewClient("http://"+b.addr, world.Hostname, a)
}

// repo makes a repository that the server serves.
func (b *bed) repo(name string) *devnet.Repo {
	b.t.Helper()
	r, err := b.net.CreateRepo(b.t.Context(), b.alice, name, devnet.RepoOptions{Spindle: world.Hostname})
	require.NoError(b.t, err)
	require.NoError(b.t, b.client(nil).Served(b.t.Context(), r.DID.String()))
	return r
}

// exit runs the binary to its end.
func exit(t *testing.T, environ []string, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b, err := cmd.CombinedOutput()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("spindle %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// cannotSandbox tells whether the binary said that this machine cannot run any.
func cannotSandbox(said string) bool {
	return strings.Contains(said, "sandboxes cannot run on this machine")
}
