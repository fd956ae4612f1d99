#!/bin/sh
# Builds spindle once, statically and stripped, and runs the benchmark programs: all, or those named.
set -eu
mkdir -p .bin/bench
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o .bin/spindle ./cmd/spindle
SPINDLE_BENCH_BINARY=$PWD/.bin/spindle
export SPINDLE_BENCH_BINARY
if [ $# -eq 0 ]; then
    set -- idle push queue page tail run language engine ingest backfill
fi
for b in "$@"; do
    CGO_ENABLED=0 go build -o ".bin/bench/$b" "./bench/$b"
    echo "# $b" >&2
    ".bin/bench/$b"
done
