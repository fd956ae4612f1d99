package enginetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
)

// machineTests need a shell, files and processes.
var machineTests = map[string]func(*testing.T, Suite){
	"ShellAndUser":      testShellAndUser,
	"Dir":               testDir,
	"WorkspaceRemoved":  testWorkspaceRemoved,
	"CustomWorkspace":   testCustomWorkspace,
	"FilesPersist":      testFilesPersist,
	"LargeOutput":       testLargeOutput,
	"TimeoutIgnored":    testTimeoutIgnored,
	"CancelSetsid":      testCancelSetsid,
	"Background":        testBackground,
	"BackgroundNoise":   testBackgroundNoise,
	"Mounts":            testMounts,
	"NoNetwork":         testNoNetwork,
	"NoHostSecrets":     testNoHostSecrets,
	"NoPower":           testNoPower,
	"SignalExit":        testSignalExit,
	"ManySteps":         testManySteps,
	"NoZombies":         testNoZombies,
	"InputIsEmpty":      testInputIsEmpty,
	"GitWorks":          testGitWorks,
	"TemporaryFolder":   testTemporaryFolder,
	"ReadOnlyToolsHold": testReadOnlyTools,
	"Files":             testFiles,
	"Path":              testPath,
	"OtherShell":        testOtherShell,
}

func asRoot(c *engines.Command)                { c.AsRoot = true }
func in(dir string) func(*engines.Command)     { return func(c *engines.Command) { c.Dir = dir } }
func shell(name string) func(*engines.Command) { return func(c *engines.Command) { c.Shell = name } }
func workspace(path string) func(s *engines.Spec) {
	return func(s *engines.Spec) { s.Workspace = path }
}
func mount(source, target string) func(s *engines.Spec) {
	return func(s *engines.Spec) { s.Mounts = append(s.Mounts, engines.Mount{Source: source, Target: target}) }
}

func testShellAndUser(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, engines.DefaultWorkspace, a.Workspace())
	require.Equal(t, "1000 1000 spindle-workflow\n", run(t, a, `echo $(id -u) $(id -g) $(id -un)`).out)
	require.Equal(t, "0 root\n", run(t, a, `echo $(id -u) $(id -un)`, asRoot).out)
	require.Equal(t, "yes\n", run(t, a, `[ "$BASH_VERSION" ] && echo yes`).out, "bash is the default")
	require.Equal(t, "no\n", run(t, a, `[ "$BASH_VERSION" ] && echo yes || echo no`, shell("sh")).out)
	require.Equal(t, a.Home()+"\n", run(t, a, `cd && touch x && pwd`).out, "the home is writable")
}

func testDir(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, a.Workspace()+"\n", run(t, a, "pwd").out)
	require.Equal(t, "/tmp\n", run(t, a, "pwd", in("/tmp")).out)
	run(t, a, "mkdir sub")
	require.Equal(t, a.Workspace()+"/sub\n", run(t, a, "pwd", in(a.Workspace()+"/sub")).out)
	r := run(t, a, "echo ran", in("/no/such/folder"))
	require.NotZero(t, r.ExitCode)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "/no/such/folder", "the job is told which folder")
}

// A job that removes its own workspace fails by itself; the machinery has no fault.
func testWorkspaceRemoved(t *testing.T, s Suite) {
	a := open(t, s)
	run(t, a, "rmdir "+a.Workspace(), asRoot, in("/"))
	require.NotZero(t, run(t, a, "true").ExitCode)
	require.Zero(t, run(t, a, "true", in("/")).ExitCode)
}

func testCustomWorkspace(t *testing.T, s Suite) {
	a := open(t, s, workspace("/tangled/workspace"))
	require.Equal(t, "/tangled/workspace\nspindle-workflow\n", run(t, a, "pwd; stat -c %U .; touch x").out)
}

func testFilesPersist(t *testing.T, s Suite) {
	first := open(t, s)
	run(t, first, "echo kept > file; echo kept > $HOME/file; echo kept > /tmp/file")
	require.Equal(t, "kept\nkept\nkept\n", run(t, first, "cat file $HOME/file /tmp/file").out)
	second := open(t, s, func(s *engines.Spec) { s.ID += "-2" })
	r := run(t, second, "cat file $HOME/file /tmp/file; ls -A")
	require.Empty(t, r.out, "another attempt sees nothing of it")
}

func testLargeOutput(t *testing.T, s Suite) {
	a := open(t, s)
	const size = 10 << 20
	var out, errs bytes.Buffer
	res, err := a.Run(t.Context(), engines.Command{
		Script: fmt.Sprintf(`head -c %d /dev/urandom > blob; sha256sum < blob >&2; cat blob`, size), Stdout: &out, Stderr: &errs,
	})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, size, out.Len())
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(out.Bytes())), strings.Fields(errs.String())[0])
}

// stubborn starts a process in a session of its own that ignores polite signals and says so, and then waits.
const stubborn = `setsid sh -c 'trap "" TERM INT HUP; echo up; while :; do sleep 0.05; echo tick; done' & sleep 100`

func testTimeoutIgnored(t *testing.T, s Suite) {
	a := open(t, s)
	up := newSignal("up\n")
	run(t, a, "true")
	began := time.Now()
	res, err := a.Run(t.Context(), engines.Command{Script: stubborn, Stdout: up, Timeout: 2 * time.Second})
	within(t, began)
	stopped(t, a, res, err, engines.KilledTimeout)
	require.Contains(t, up.buf.String(), "up\n")
}

func testCancelSetsid(t *testing.T, s Suite) {
	a := open(t, s)
	up := newSignal("tick\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-up.seen
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	res, err := a.Run(t.Context(), engines.Command{Script: stubborn, Stdout: up})
	said := up.buf.Len()
	wait(t, done, "Close")
	stopped(t, a, res, err, engines.KilledCancel)
	require.Equal(t, said, up.buf.Len(), "nothing is written after Run has returned")
}

// A child that stays behind with the step's output open does not hold the step.
func testBackground(t *testing.T, s Suite) {
	a := open(t, s)
	began := time.Now()
	r := run(t, a, `setsid sh -c 'sleep 60; echo late' & echo now`)
	require.Equal(t, "now\n", r.out)
	require.Less(t, time.Since(began), Prompt)
	require.Equal(t, "next\n", run(t, a, "echo next").out)
}

// Neither does one that writes all the time, and its words do not get into the next step.
func testBackgroundNoise(t *testing.T, s Suite) {
	a := open(t, s)
	began := time.Now()
	r := run(t, a, `setsid sh -c 'while echo noise; do :; done' & sleep 0.2; echo done >&2`)
	require.Less(t, time.Since(began), Prompt)
	require.Equal(t, "done\n", r.err)
	require.Contains(t, r.out, "noise\n")
	require.Equal(t, "next\n", run(t, a, "echo next").out)
}

func testMounts(t *testing.T, s Suite) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", "file"), []byte("shown\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one"), []byte("alone\n"), 0o644))
	a := open(t, s, mount(filepath.Join(dir, "d"), "/srv/repo.git"), mount(filepath.Join(dir, "one"), "/srv/one"))
	require.Equal(t, "shown\nalone\n", run(t, a, "cat /srv/repo.git/file /srv/one").out)
	for _, user := range []func(*engines.Command){asRoot, func(*engines.Command) {}} {
		run(t, a, "echo bad > /srv/repo.git/file; rm -f /srv/repo.git/file; echo bad > /srv/repo.git/new; echo bad > /srv/one; mount -o remount,rw /srv/one", user)
	}
	got, err := os.ReadFile(filepath.Join(dir, "d", "file"))
	require.NoError(t, err)
	require.Equal(t, "shown\n", string(got))
	require.NoFileExists(t, filepath.Join(dir, "d", "new"))
	for _, target := range []string{"/etc", "/usr/bin", "/proc/x", a.Workspace(), "/workspace"} {
		_, err := s.Engine.Open(t.Context(), engines.Spec{ID: id(t) + "-bad", Mounts: []engines.Mount{{Source: dir, Target: target}}})
		require.ErrorIs(t, err, engines.ErrBadSpec, target)
		publicOnly(t, err)
	}
}

func testNoNetwork(t *testing.T, s Suite) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	reached := make(chan struct{}, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
			reached <- struct{}{}
		}
	}()
	a := open(t, s)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	connect := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%s", port)
	require.NotZero(t, run(t, a, connect).ExitCode)
	require.NotZero(t, run(t, a, connect, asRoot).ExitCode)
	require.NotZero(t, run(t, a, "exec 3<>/dev/tcp/169.254.169.254/80").ExitCode)
	require.Empty(t, reached, "the server's loopback was reached")
}

func testNoHostSecrets(t *testing.T, s Suite) {
	canary := filepath.Join(t.TempDir(), "canary")
	require.NoError(t, os.WriteFile(canary, []byte("canary"), 0o644))
	a := open(t, s)
	for _, path := range []string{canary, "/etc/shadow", "/root/.ssh", "/root/.bashrc", "/var/lib/dpkg", "/var/log", "/home/" + os.Getenv("USER") + "/.profile", "/run/docker.sock", "/sys/kernel/security/apparmor", "/dev/kvm", "/dev/sda", "/dev/mem"} {
		require.NotZero(t, run(t, a, `[ -e "$P" ]`, asRoot, func(c *engines.Command) { c.Env = []string{"P=" + path} }).ExitCode, path)
	}
	require.Equal(t, "spindle-workflow\n", run(t, a, "ls /home").out)
	require.Empty(t, run(t, a, "ls -A /root", asRoot).out)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.NotEqual(t, host+"\n", run(t, a, "cat /proc/sys/kernel/hostname").out)
	require.NotContains(t, run(t, a, "cat /proc/[0-9]*/cmdline", asRoot).out, filepath.Base(os.Args[0]), "processes of the server are seen")
}

// The workflow user has no capability and cannot get one; root cannot reach the kernel.
func testNoPower(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, "CapEff:\t0000000000000000\n", run(t, a, "grep CapEff /proc/self/status").out)
	require.Equal(t, "NoNewPrivs:\t1\n", run(t, a, "grep NoNewPrivs /proc/self/status").out)
	for _, script := range []string{"mknod /tmp/sda b 8 0 && cat /tmp/sda", "mount -t tmpfs none /mnt", "echo b > /proc/sysrq-trigger", "chroot / true && insmod x"} {
		require.NotZero(t, run(t, a, script).ExitCode, script)
		require.NotZero(t, run(t, a, script, asRoot).ExitCode, script)
	}
}

func testSignalExit(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, 128+9, run(t, a, "kill -9 $$").ExitCode)
	require.Equal(t, 128+15, run(t, a, "kill -TERM $$").ExitCode)
	require.Zero(t, run(t, a, "true").ExitCode)
}

func testManySteps(t *testing.T, s Suite) {
	a := open(t, s)
	for i := range 15 {
		require.Equal(t, fmt.Sprintf("%d\n", i), run(t, a, fmt.Sprintf("echo %d", i)).out)
	}
}

// What commands leave behind is reaped when it ends.
func testNoZombies(t *testing.T, s Suite) {
	a := open(t, s)
	run(t, a, "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.01' & done; wait; sh -c '(sleep 0.05 &) ; (sleep 0.05 &)'; sleep 0.3")
	require.Equal(t, "0\n", run(t, a, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").out)
}

func testInputIsEmpty(t *testing.T, s Suite) {
	require.Equal(t, "0\n", run(t, open(t, s), "cat | wc -c").out)
}

// What a checkout does: root and the workflow user both work in the same repository.
func testGitWorks(t *testing.T, s Suite) {
	a := open(t, s)
	if run(t, a, "command -v git").ExitCode != 0 {
		t.Skip("git is not in the image")
	}
	r := run(t, a, "git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m first && git log --format=%s")
	require.Equal(t, "first\n", r.out, r.err)
	r = run(t, a, "git log --format=%s", asRoot)
	require.Equal(t, "first\n", r.out, r.err)
}

func testTemporaryFolder(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, "ran\n", run(t, a, `printf '#!/bin/sh\necho ran\n' > /tmp/x && chmod +x /tmp/x && /tmp/x`).out)
	require.Equal(t, "1777\n", run(t, a, "stat -c %a /tmp").out)
}

func testReadOnlyTools(t *testing.T, s Suite) {
	a := open(t, s)
	require.NotZero(t, run(t, a, "touch /usr/bin/evil").ExitCode)
	require.Equal(t, s.OwnTools, run(t, a, "touch /usr/bin/evil", asRoot).ExitCode == 0)
	other := open(t, s, func(s *engines.Spec) { s.ID += "-2" })
	require.Zero(t, run(t, other, "[ ! -e /usr/bin/evil ]").ExitCode, "another attempt sees nothing of it")
	require.NotZero(t, run(t, a, "echo x >> /etc/passwd").ExitCode)
}
