package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A first workflow for each kind of project passes lint, and runs where the tools are here.
func TestInitWritesWhatRuns(t *testing.T) {
	t.Parallel()
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		files map[string]string
		tool  string
		want  string
	}{
		"go": {map[string]string{
			"go.mod": "module example.com/hello\n\ngo 1.24\n", "a.go": "package hello\n\nfunc Two() int { return 2 }\n",
			"a_test.go": "package hello\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
		}, "go", "go test ./..."},
		"node":   {map[string]string{"package.json": `{"name":"x","scripts":{"test":"node a.js"}}`, "a.js": "console.log('ran')\n"}, "npm", "npm test"},
		"shell":  {map[string]string{"greet.sh": "echo hi\n", "test.sh": "sh greet.sh | grep -q hi\n"}, "sh", "sh ./test.sh"},
		"rust":   {map[string]string{"Cargo.toml": "[package]\n"}, "", "cargo test"},
		"python": {map[string]string{"pyproject.toml": "[project]\nname = 'x'\n"}, "", "python3 -m pytest"},
		"nix":    {map[string]string{"flake.nix": "{}\n"}, "", "nix flake check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := project(t, c.files)
			code, out := exit(t, nil, "init", "-C", dir)
			require.Equal(t, 0, code, out)
			require.Contains(t, out, "spindle run")
			text, err := os.ReadFile(filepath.Join(dir, flow("test")))
			require.NoError(t, err)
			require.Contains(t, string(text), c.want)
			code, out = exit(t, nil, "lint", "--strict", dir)
			require.Equal(t, 0, code, out)
			code, out = exit(t, nil, "init", "-C", dir)
			require.Equal(t, 1, code, out)
			require.Contains(t, out, "--force")
			code, out = exit(t, nil, "init", "-C", dir, "--force")
			require.Equal(t, 0, code, out)
			if _, err := exec.LookPath(c.tool); c.tool == "" || err != nil {
				t.Logf("not run: this machine has no %q to run it with", c.tool)
				return
			}
			code, out = exit(t, []string{"GOFLAGS=-mod=mod", "GOCACHE=" + strings.TrimSpace(string(cache)), "GOPATH=" + filepath.Join(t.TempDir(), "p")}, "run", "-C", dir, "--isolation", "off")
			require.Equal(t, 0, code, out)
		})
	}
	code, out := exit(t, nil, "init", "-C", t.TempDir(), "--template", "cobol")
	require.Equal(t, 2, code, out)
}

const actions = `name: CI
on:
  push:
    branches: [main]
  pull_request:
  schedule:
    - cron: '0 3 * * 1'
  workflow_dispatch:
    inputs:
      level: {type: choice, options: [low, high], default: low}
  release:
permissions: {contents: read}
env:
  GOFLAGS: -mod=readonly
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        go: ['1.25', '1.26']
    steps:
      - uses: actions/checkout@v4
        with: {fetch-depth: 5}
      - uses: actions/setup-go@v5
        with: {go-version: "${{ matrix.go }}"}
      - name: unit
        run: go test ./... && echo ${{ matrix.go }} ${{ github.sha }} >> $GITHUB_OUTPUT
        env:
          TOKEN: ${{ secrets.TOKEN }}
      - if: failure()
        run: echo ${{ github.event.pull_request.title }}
  deploy:
    needs: test
    runs-on: ubuntu-latest
    if: github.ref == 'refs/heads/main'
    timeout-minutes: 10
    steps:
      - uses: actions/checkout@v4
      - run: |
          set -e
          ./deploy.sh
        working-directory: ./ops
      - uses: some/action@v1
`

// What maps of an Actions file is taken over, and each line that does not is told with what to do.
func TestInitFromGitHub(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{".github/workflows/ci.yml": actions})
	code, out := exit(t, nil, "init", "-C", dir, "--from", "github")
	require.Equal(t, 3, code, "one expression has no counterpart, and its file says so: %s", out)
	for _, want := range []string{
		".github/workflows/ci.yml:11: not taken over: event release", "ci.yml:12: not taken over: permissions", "ci.yml:19: not taken over: fail-fast",
		"ci.yml:25: not taken over: actions/setup-go@v5", "ci.yml:32: not taken over: the expression ${{ github.event.pull_request.title }}",
		"ci.yml:44: not taken over: some/action@v1", "wrote .tangled/workflows/ci-test.yml", "wrote .tangled/workflows/ci-deploy.yml",
	} {
		require.Contains(t, out, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, flow("ci-test")))
	require.NoError(t, err)
	for _, want := range []string{"go: [\"1.25\", \"1.26\"]", "${SPINDLE_MATRIX_GO} ${TANGLED_SHA} >> $SPINDLE_OUTPUT", "secrets: [TOKEN]", "clone: {depth: 5}", "if: failure()", "options: [low, high]"} {
		require.Contains(t, string(text), want)
	}
	text, err = os.ReadFile(filepath.Join(dir, flow("ci-deploy")))
	require.NoError(t, err)
	for _, want := range []string{"needs: [ci-test]", `if: "trigger.ref == \"refs/heads/main\""`, "timeout: 10m", "working_directory: ops"} {
		require.Contains(t, string(text), want)
	}
	require.Contains(t, out, "E-WF-TEMPLATE")
}

func TestInitFromWoodpecker(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{".woodpecker.yml": `when:
  - event: push
    branch: main
  - event: tag
steps:
  - name: test
    image: golang:1.26
    commands:
      - go vet ./...
      - go test ./...
    environment:
      TOKEN:
        from_secret: token
  - name: notify
    image: plugins/slack
    settings: {webhook: x}
    when: {status: [failure]}
services:
  - name: db
    image: postgres:17
`})
	code, out := exit(t, nil, "init", "-C", dir, "--from", "woodpecker", "--print")
	require.Equal(t, 0, code, out)
	for _, want := range []string{"set -e\n", "go vet ./...\n", "secrets: [TOKEN]", ".woodpecker.yml:7: not taken over: image golang:1.26", "the plugin plugins/slack", "image: \"postgres:17\""} {
		require.Contains(t, out, want)
	}
	require.NoFileExists(t, filepath.Join(dir, flow("woodpecker")))
}
