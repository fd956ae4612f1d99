#!/bin/sh
# Runs each fuzz target of the module for the time given (default 10s).
set -eu
time=${1:-10s}
for pkg in $(go list ./...); do
    for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
        echo "fuzz $pkg $target $time"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg"
    done
done
