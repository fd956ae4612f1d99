package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"spindle/knot"
	"spindle/workflow"
)

const (
	goodFile = "when:\n  - {event: push, branch: main, paths: [\"src/**\"]}\nsteps:\n  - command: make test\n"
	tagFile  = "when:\n  - {event: push, tag: \"v*\"}\nsteps:\n  - command: make deploy\n"
	badFile  = "steps:\n  - name: unit\n    comand: make test\n"
	warnFile = "when:\n  - event: push\nsteps:\n  - command: make\n"
)

// checkedOut is a folder that looks like a repository with these workflow files.
func checkedOut(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, workflow.Dir), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, workflow.Dir, name), []byte(text), 0o600))
	}
	return dir
}

// lint runs the binary in dir.
func lint(t *testing.T, dir, stdin string, environ []string, args ...string) (code int, out, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), append([]string{"lint"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestLintTellsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	dir := checkedOut(t, map[string]string{"a.yml": badFile, "b.yaml": badFile, "c.yml": goodFile, "d.yml": warnFile})
	below := filepath.Join(dir, "src", "deep")
	require.NoError(t, os.MkdirAll(below, 0o700))
	code, out, said := lint(t, below, "", nil)
	require.Equal(t, exitInvalid, code)
	require.Contains(t, out, `error[E-WF-KEY]: unknown key "comand" in step 1; did you mean "command"?
  ┌─ ../../.tangled/workflows/a.yml:3:5
2 │   - name: unit
3 │     comand: make test
  │     ^^^^^^
  = fix: rename it to command
  = more: spindle explain E-WF-KEY
`)
	require.Contains(t, out, "workflows/b.yaml:3:5")
	require.Contains(t, out, "warning[W-WF-NEVER]")
	require.Contains(t, said, "spindle: 2 errors, 1 warning in 4 files (")

	code, out, said = lint(t, dir, "", []string{"LANG=C"})
	require.Equal(t, exitInvalid, code)
	require.Equal(t, -1, strings.IndexFunc(out+said, func(r rune) bool { return r > 126 }), out)
}

func TestLintExitCodes(t *testing.T) {
	t.Parallel()
	warned := checkedOut(t, map[string]string{"a.yml": warnFile})
	good := checkedOut(t, map[string]string{"a.yml": goodFile})
	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, ".git"), 0o700))
	for _, c := range []struct {
		dir   string
		stdin string
		args  string
		want  int
		said  string
	}{
		{good, "", "", exitOK, "0 errors, 0 warnings in 1 file"},
		{good, "", "--strict", exitOK, "0 errors"},
		{warned, "", "", exitOK, "0 errors, 1 warning in 1 file"},
		{warned, "", "--strict", exitInvalid, "0 errors, 1 warning"},
		{empty, "", "", exitNotFound, "there is no .tangled/workflows/ here or above"},
		{empty, "", good, exitOK, "in 1 file"},
		{empty, "", good + "/" + workflow.Dir, exitOK, "in 1 file"},
		{empty, "", good + " " + warned, exitOK, "1 warning in 2 files"},
		{empty, "", good + "/" + workflow.Dir + "a.yml", exitOK, "in 1 file"},
		{empty, "", "nowhere", exitNotFound, "nowhere"},
		{empty, "", ".", exitNotFound, "there is no folder .tangled/workflows"},
		{empty, goodFile, "-", exitOK, "in 1 file"},
		{empty, badFile, "-", exitInvalid, "stdin:3:5"},
		{empty, strings.Repeat("#", 300<<10), "-", exitInvalid, "larger than the 262144 bytes allowed"},
		{empty, goodFile, "- .", exitUsage, "goes alone"},
		{good, "", "--format xml", exitUsage, "human, json, sarif, github or lsp"},
		{good, "", "--branch x", exitUsage, "--branch is for --explain"},
		{good, "", "--explain --event party", exitUsage, "party"},
		{good, "", "--explain --branch a --tag b", exitUsage, "--branch or --tag"},
		{good, "", "--explain --event manual --tag b", exitUsage, "--tag is for"},
		{good, "", "/dev/null", exitUsage, "neither a file nor a folder"},
	} {
		code, out, said := lint(t, c.dir, c.stdin, nil, strings.Fields(c.args)...)
		require.Equal(t, c.want, code, "%s\n%s%s", c.args, out, said)
		require.Contains(t, out+said, c.said, c.args)
	}
}

// TestLintReadsWhatAServerReads holds lint to what a git host hands out: no links, folders, devices or more than is allowed.
func TestLintReadsWhatAServerReads(t *testing.T) {
	t.Parallel()
	dir := checkedOut(t, map[string]string{
		"big.yml": strings.Repeat("# long\n", 1<<20), "notes.txt": "a note", "odd name.yml": goodFile, "same.yml": goodFile, "same.yaml": goodFile,
	})
	in := func(name string) string { return filepath.Join(dir, workflow.Dir, name) }
	secret := filepath.Join(t.TempDir(), "secret.yml")
	require.NoError(t, os.WriteFile(secret, []byte("the text of the secret"), 0o600))
	require.NoError(t, os.Symlink(secret, in("link.yml")))
	require.NoError(t, os.Symlink("loop.yml", in("loop.yml")))
	require.NoError(t, os.Mkdir(in("folder.yml"), 0o700))
	require.NoError(t, syscall.Mkfifo(in("pipe.yml"), 0o600))
	code, out, said := lint(t, dir, "", nil)
	require.Equal(t, exitInvalid, code, said)
	require.NotContains(t, out, "the text of the secret")
	for _, want := range []string{
		"symbolic link\n  ┌─ .tangled/workflows/link.yml", "symbolic link\n  ┌─ .tangled/workflows/loop.yml", "are not read\n  ┌─ .tangled/workflows/folder.yml",
		"not a regular file\n  ┌─ .tangled/workflows/pipe.yml", "notes.txt", "larger than the 262144 bytes allowed\n  ┌─ .tangled/workflows/big.yml",
		"E-WF-FILE", "E-WF-TWICE",
	} {
		require.Contains(t, out, want)
	}

	// All files together are bounded as well, and so are the entries of the folder.
	many := map[string]string{}
	for i := range 6 {
		many[fmt.Sprintf("f%d.yml", i)] = goodFile + strings.Repeat("# long\n", 200<<10/7)
	}
	require.Greater(t, 6*200<<10, knot.MaxWorkflowBytes)
	code, out, _ = lint(t, checkedOut(t, many), "", nil, "--strict")
	require.Equal(t, exitInvalid, code)
	require.Equal(t, 1, strings.Count(out, "1048576 bytes in all"), out)
	crowd := checkedOut(t, nil)
	for i := range maxEntries + 1 {
		require.NoError(t, os.WriteFile(filepath.Join(crowd, workflow.Dir, fmt.Sprintf("%d.txt", i)), nil, 0o600))
	}
	code, _, said = lint(t, crowd, "", nil)
	require.Equal(t, exitInvalid, code)
	require.Contains(t, said, "more than 1000 entries")

	// A linked folder is none on a git host.
	linked := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, ".tangled"), filepath.Join(linked, ".tangled")))
	code, _, said = lint(t, linked, "", nil)
	require.Equal(t, exitInvalid, code)
	require.Contains(t, said, "symbolic link")
}

func TestLintExplainsWhatStarts(t *testing.T) {
	t.Parallel()
	dir := checkedOut(t, map[string]string{"test.yml": goodFile, "deploy.yml": tagFile, "bad.yml": badFile})
	for args, want := range map[string]string{
		"--event push --branch main": `push main  ! bad.yml     (invalid)
           ✗ deploy.yml  (wants tag v*, got branch main)
           ✓ test.yml
the conditions on paths were not compared; say what changed with --changed a,b
`,
		"--tag v1.2": `push tag v1.2  ! bad.yml     (invalid)
               ✓ deploy.yml
               ✗ test.yml    (wants branch main, got tag v1.2)
`,
		"--branch main --changed README.md,doc/a": `push main  ! bad.yml     (invalid)
           ✗ deploy.yml  (wants tag v*, got branch main)
           ✗ test.yml    (wants paths src/** (changed: README.md and 1 more))

`,
		"--event manual": `manual  ! bad.yml     (invalid)
        ✓ deploy.yml
        ✓ test.yml
`,
		"": `pull_request main  ! bad.yml     (invalid)
                   ✗ deploy.yml  (wants event push, got pull_request)
`,
	} {
		code, out, _ := lint(t, dir, "", nil, append([]string{"--explain"}, strings.Fields(args)...)...)
		require.Equal(t, exitInvalid, code)
		require.Contains(t, out, want, args)
	}
}

func TestLintFormats(t *testing.T) {
	t.Parallel()
	dir := checkedOut(t, map[string]string{"a.yml": badFile, "b.yml": tagFile})
	code, out, _ := lint(t, dir, "", nil, "--format", "json", "--explain", "--branch", "main")
	require.Equal(t, exitInvalid, code)
	var answer lintJSON
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	require.Equal(t, 1, answer.V)
	require.Equal(t, "lint", answer.Kind)
	require.Equal(t, []int{2, 1, 0}, []int{answer.Files, answer.Errors, answer.Warnings})
	require.Equal(t, "E-WF-KEY", answer.Diagnostics[0].Code)
	require.Equal(t, []decision{
		{Event: "push", Ref: "main", File: ".tangled/workflows/a.yml", Invalid: true, Why: "invalid"},
		{Event: "push", Ref: "main", File: ".tangled/workflows/b.yml", Why: "wants tag v*, got branch main"},
	}, answer.Decisions)

	code, out, _ = lint(t, dir, "", nil, "--format", "sarif")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, out, `"version": "2.1.0"`)
	require.Contains(t, out, `"uri": ".tangled/workflows/a.yml"`)
	require.Contains(t, out, `"startLine": 3`)
	// What has nothing to say is still a whole answer.
	code, out, said := lint(t, "", goodFile, nil, "--format", "json", "-")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, `"diagnostics": []`)
	require.Empty(t, said)
}

// TestLintColours runs lint on a terminal.
func TestLintColours(t *testing.T) {
	t.Parallel()
	dir := checkedOut(t, map[string]string{"a.yml": badFile + "environment: {A: \"\\e[31m\x1b\"}\n", "b.yml": goodFile})
	require.Contains(t, onTerminal(t, dir, "TERM=xterm"), "\x1b[1;31merror[E-WF-ENCODING]\x1b[0m")
	require.Contains(t, onTerminal(t, dir, "TERM=xterm"), "\x1b[32m✓\x1b[0m b.yml")
	for _, without := range []string{"NO_COLOR=1", "TERM=dumb"} {
		out := onTerminal(t, dir, without)
		require.Contains(t, out, "error[E-WF-ENCODING]")
		require.NotContains(t, out, "\x1b")
	}
	_, out, said := lint(t, dir, "", []string{"TERM=xterm"}, "--explain")
	require.NotContains(t, out+said, "\x1b")
}

// onTerminal is what lint shows on a terminal.
func onTerminal(t *testing.T, dir, env string) string {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	defer ours.Close()
	fd := int(ours.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary(t), "lint", "--explain")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, theirs, theirs
	cmd.Env = []string{env}
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	read := make(chan string, 1)
	go func() {
		out, _ := io.ReadAll(ours) // ends with an error when the other side is closed
		read <- string(out)
	}()
	select {
	case out := <-read:
		_ = cmd.Wait()
		return strings.ReplaceAll(out, "\r\n", "\n")
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("lint does not end")
		return ""
	}
}
