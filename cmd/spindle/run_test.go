package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// project is a repository with files, all committed.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	gitIn(t, dir, "init", "-q", "-b", "main")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first")
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func flow(name string) string { return ".tangled/workflows/" + name + ".yml" }

// off runs without isolation, which needs nothing of the machine.
func off(t *testing.T, dir string, args ...string) (code int, out string) {
	t.Helper()
	return exit(t, nil, append([]string{"run", "-C", dir, "--isolation", "off"}, args...)...)
}

func TestRunPasses(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("test"): "steps:\n  - name: look\n    command: cat a; git log --format=%s; git status --short; echo $TANGLED_REF_NAME $CI\n",
		"a":          "one\n", ".gitignore": "ignored\n",
	})
	write(t, dir, map[string]string{"a": "two\n", "new": "x\n", "ignored": "secret\n"})
	before := gitIn(t, dir, "status", "--short", "--ignored")
	code, out := off(t, dir)
	require.Equal(t, 0, code, out)
	for _, want := range []string{"two\n", "first\n", " M a\n", "?? new\n", "main true\n", "passed  test"} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "ignored\n", "what git ignores is not there")
	require.Equal(t, before, gitIn(t, dir, "status", "--short", "--ignored"), "the tree is as it was")
	code, out = off(t, dir, "--ref", "HEAD")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "one\n")
	require.NotContains(t, out, "?? new")
	code, out = off(t, dir, "--ref", "no-such-ref")
	require.Equal(t, 4, code, out)
}

func TestRunInASandbox(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("test"): "steps:\n  - command: echo A=b >> $SPINDLE_ENV; pwd; cat a; git log --format=%s; touch made\n  - command: echo got $A; ls /root/.ssh\n    continue_on_error: true\n", "a": "one\n",
	})
	code, out := exit(t, nil, "run", "-C", dir)
	if cannotSandbox(out) || strings.Contains(out, "sandbox could not be") {
		t.Skip("no sandbox can run here: " + out)
	}
	require.Equal(t, 0, code, out)
	for _, want := range []string{"/workspace/repo\n", "one\n", "first\n", "got b\n"} {
		require.Contains(t, out, want)
	}
	require.NoFileExists(t, filepath.Join(dir, "made"))
}

func TestRunExitCodesAndReport(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("bad"):  "steps:\n  - command: echo fine\n  - name: unit\n    command: \"seq 1 100; echo 'Error: it broke'; seq 200 205; exit 3\"\n  - command: echo never\n",
		flow("slow"): "timeout: 1s\nsteps: [{command: sleep 60}]\n",
		flow("good"): "steps: [{command: 'true'}]\n",
	})
	code, out := off(t, dir, "bad")
	require.Equal(t, 1, code, out)
	for _, want := range []string{`step "unit" exited 3`, "lines around the first error", "│ Error: it broke", "again: spindle run", "--step unit", "✗ failed  bad"} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "never\n")
	code, out = off(t, dir, "slow")
	require.Equal(t, 7, code, out)
	require.Contains(t, out, "limit of 1s")
	code, out = off(t, dir)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "bad  | 100\n", "lines say whose they are")
	require.Contains(t, out, "1 of 3 workflows passed")
	code, out = off(t, dir, "bad", "--step", "1")
	require.Equal(t, 0, code, out)
	code, out = off(t, dir, "bad", "--from-step", "unit")
	require.Equal(t, 1, code, out)
	require.NotContains(t, out, "fine\n")
	code, out = off(t, dir, "bad", "--step", "nope")
	require.Equal(t, 4, code, out)
	code, out = off(t, dir, "gone")
	require.Equal(t, 4, code, out)
	require.Contains(t, out, "there are: bad, good, slow")
	write(t, dir, map[string]string{flow("wrong"): "stepps: []\n"})
	code, out = off(t, dir)
	require.Equal(t, 3, code, out)
	require.Contains(t, out, "E-WF-KEY")
	code, out = off(t, dir, "good", "--engine", "microvm")
	require.Equal(t, 9, code, out)
	code, out = off(t, t.TempDir())
	require.Equal(t, 4, code, out)
	require.Contains(t, out, "spindle init")
}

func TestRunSimulatesEvents(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("push"):   "when: [{event: push, branch: main}]\nsteps: [{command: echo it is $TANGLED_PIPELINE_KIND}]\n",
		flow("tag"):    "when: [{event: push, tag: 'v*'}]\nsteps: [{command: echo tag $TANGLED_REF_NAME}]\n",
		flow("pull"):   "when: [{event: pull_request, branch: main}]\nsteps: [{command: echo to $TANGLED_PR_TARGET_BRANCH}]\n",
		flow("manual"): "when: [{event: manual}]\ninputs: {level: {type: choice, options: [low, high], default: low}}\nsteps: [{command: echo level $TANGLED_INPUT_LEVEL}]\n",
		flow("paths"):  "when: [{event: push, branch: '**', paths: ['src/**']}]\nsteps: [{command: echo src}]\n",
	})
	code, out := off(t, dir, "--branch", "main", "--changed", "README")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "it is push\n")
	require.NotContains(t, out, "src\n")
	_, out = off(t, dir, "--tag", "v1")
	require.Contains(t, out, "tag v1\n")
	_, out = off(t, dir, "--branch", "fix", "--changed", "src/a")
	require.Contains(t, out, "src\n")
	code, out = off(t, dir, "--event", "pull_request", "--target", "main", "--as", "fork")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "to main\n")
	require.Contains(t, out, "has to approve")
	code, out = off(t, dir, "manual", "--event", "manual", "--input", "level=high")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "level high\n")
	code, out = off(t, dir, "manual", "--event", "manual", "--input", "level=huge")
	require.Equal(t, 2, code, out)
	code, out = off(t, dir, "--plan", "--branch", "main")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "✓ push")
	require.Contains(t, out, "✗ tag  (")
	require.NotContains(t, out, "it is push")
	for _, bad := range [][]string{
		{"--event", "x"}, {"--as", "x"}, {"--isolation", "x"}, {"--format", "x"}, {"--input", "x"}, {"--tag", "v1", "--branch", "b"}, {"--event", "manual", "--as", "fork"},
		{"--step", "a", "--from-step", "b"}, {"--shell-on-failure"}, {"--secret", "A=b"}, {"--secret", "a-b"}, {"--secret", "NOT_THERE"},
	} {
		code, out = off(t, dir, bad...)
		require.Equal(t, 2, code, "%v: %s", bad, out)
	}
}

// Needs, matrix, conditions, retries and outputs as on the server.
func TestRunWholeLanguage(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("build"): "steps: [{command: 'echo version=2 >> $SPINDLE_OUTPUT; echo \"# built\" >> $SPINDLE_SUMMARY'}]\n",
		flow("test"):  "needs: [build]\nmatrix: {go: ['1.25', '1.26']}\nsteps:\n  - command: echo on $SPINDLE_MATRIX_GO\n  - if: needs.build.outputs.version == '2'\n    command: echo two\n",
		flow("flaky"): "retry: {max: 2, on: [failure]}\nsteps: [{command: 'test -e /tmp/$MARK || { touch /tmp/$MARK; exit 1; }'}]\nenvironment: {MARK: " + filepath.Base(t.TempDir()) + filepath.Base(filepath.Dir(t.TempDir())) + "}\n",
		flow("red"):   "steps: [{command: exit 1}]\n",
		flow("after"): "needs: [red]\nsteps: [{command: echo never}]\n",
		flow("last"):  "needs: [red]\nif: failure()\nsteps: [{command: echo cleanup}]\n",
	})
	code, out := off(t, dir, "--format", "json")
	require.Equal(t, 1, code, out)
	var report struct {
		T         string
		Status    string
		Workflows []struct {
			Name, Status, Reason, Summary string
			Outputs                       map[string]string
		}
	}
	for line := range strings.Lines(out) {
		if json.Unmarshal([]byte(line), &report) == nil && report.T == "report" {
			break
		}
	}
	require.Equal(t, "report", report.T, out)
	got := map[string]string{}
	for _, w := range report.Workflows {
		got[w.Name] = w.Status
		if w.Name == "build" {
			require.Equal(t, "# built\n", w.Summary)
			require.Equal(t, map[string]string{"version": "2"}, w.Outputs)
		}
	}
	require.Equal(t, map[string]string{
		"build": "passed", "test[go=1.25]": "passed", "test[go=1.26]": "passed", "flaky": "passed", "red": "failed", "after": "skipped", "last": "passed",
	}, got, out)
	require.Contains(t, out, `"text":"two"`)
}

// B-114, B-119: secrets come from the environment or a file, are masked, are listed when they are missing, and never reach
// a fork's code.
func TestRunSecrets(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		flow("test"): "secrets: [DEPLOY_KEY]\nwhen: [{event: [push, pull_request], branch: '**'}]\nsteps:\n  - command: echo key ${DEPLOY_KEY:-none}\n  - command: echo ${DEPLOY_KEY:-none} | sed 's/-/-\\x1b[1m/'\n",
	})
	code, out := off(t, dir)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "DEPLOY_KEY (of test)")
	require.NotContains(t, out, "key none")
	code, out = exit(t, []string{"DEPLOY_KEY=open-sesame"}, "run", "-C", dir, "--isolation", "off", "--secret", "DEPLOY_KEY")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "key ***\n")
	require.NotContains(t, out, "sesame")
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("# of the desk\nexport DEPLOY_KEY=\"open-sesame\"\n"), 0o644))
	code, out = off(t, dir, "--secrets-file", file)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "key ***\n")
	require.Contains(t, out, "chmod 600")
	code, out = off(t, dir, "--as", "fork")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "key none\n")
	code, out = off(t, dir, "--as", "fork", "--secrets-file", file)
	require.Equal(t, 2, code, out)
}

// The first interrupt cancels and reports, and leaves nothing.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{flow("test"): "steps: [{command: echo started; sleep 300}, {command: echo never}]\n"})
	cmd := exec.Command(binary(t), "run", "-C", dir, "--isolation", "off")
	said := &speech{}
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "started\n") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it did not end")
	}
	require.Equal(t, 8, cmd.ProcessState.ExitCode(), said.String())
	require.Contains(t, said.String(), "cancelled by you")
}

// In the tree itself, and keeping what a workflow left.
func TestRunInPlaceAndKeep(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{flow("test"): "steps: [{command: touch made}]\n"})
	keep := filepath.Join(t.TempDir(), "kept")
	code, out := off(t, dir, "--keep", keep)
	require.Equal(t, 0, code, out)
	require.NoFileExists(t, filepath.Join(dir, "made"))
	found, err := filepath.Glob(filepath.Join(keep, "*", "made"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	code, out = off(t, dir, "--in-place")
	require.Equal(t, 0, code, out)
	require.FileExists(t, filepath.Join(dir, "made"))
	code, out = exit(t, nil, "run", "-C", dir, "--in-place")
	require.Equal(t, 2, code, out)
}

// Groups and annotations are shown as such; unknown words are text.
func TestRunLogCommands(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{flow("test"): "steps:\n  - command: |\n      echo '--- Build'\n      echo '::group::Inner'\n      echo '::error file=a.go,line=3::it broke'\n      echo '::unknown::x'\n      echo '::add-mask::very-secret'\n      echo very-secret\n      exit 1\n"})
	code, out := off(t, dir)
	require.Equal(t, 1, code, out)
	for _, want := range []string{"▾ Build\n", "▾ Inner\n", "error: a.go:3: it broke\n", "::unknown::x\n", "::add-mask::***\n", "***\n"} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "very-secret")
}
