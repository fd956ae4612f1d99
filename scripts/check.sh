#!/bin/sh
# What must hold before a change lands. Each part prints what it does; the first failure ends the run.
set -eu

say() { printf '\n== %s\n' "$1"; }

say "format"
bad=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$bad" ]; then
    echo "not formatted (gofmt -w):"
    echo "$bad"
    exit 1
fi

say "build"
mkdir -p .bin
# Without -trimpath: every package would be compiled once more for it.
CGO_ENABLED=0 go build -ldflags "-s -w" -o .bin/spindle ./cmd/spindle
SPINDLE_TEST_RUNSC=$PWD/.bin/spindle
export SPINDLE_TEST_RUNSC

say "vet"
CGO_ENABLED=0 go vet ./...

say "staticcheck"
if command -v staticcheck >/dev/null; then
    CGO_ENABLED=0 staticcheck ./...
else
    echo "left out: staticcheck is not installed (go install honnef.co/go/tools/cmd/staticcheck@latest)"
fi

say "govulncheck"
if ! command -v govulncheck >/dev/null; then
    echo "left out: govulncheck is not installed (go install golang.org/x/vuln/cmd/govulncheck@latest)"
elif out=$(CGO_ENABLED=0 govulncheck ./... 2>&1); then
    echo "$out"
elif echo "$out" | grep -qiE 'no such host|connection refused|fetching vulnerabilities|dial tcp|403|forbidden|timeout'; then
    echo "left out: the vulnerability database cannot be reached from here"
else
    echo "$out"
    exit 1
fi

say "test"
if command -v cc >/dev/null; then
    # The race detector needs a C compiler. The sandbox under test is the static binary built above, and
    # cmd/spindle, which holds all of gVisor, is tested without the detector.
    CGO_ENABLED=1 go test -race $(go list ./... | grep -v '^spindle/cmd/spindle')
    CGO_ENABLED=0 go test ./cmd/spindle/...
else
    CGO_ENABLED=0 go test ./...
fi

say "demo"
./.bin/spindle demo --check
