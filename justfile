# The one interface for working on spindle. `just` alone lists what there is.

export CGO_ENABLED := env("CGO_ENABLED", "0")

# List the recipes.
default:
    @just --list --unsorted

# Show the main job at work: a push becomes a sandboxed run that anyone can follow.
demo *ARGS:
    go run ./cmd/spindle demo {{ARGS}}

# Run the tests; `just test ./store` runs one room's.
test *ARGS="./...":
    go test {{ARGS}}

# Everything that must hold before a change lands: format, vet, staticcheck, govulncheck, race tests, the demo's acts.
check:
    sh scripts/check.sh

# Measure the paths that users wait on; prints `name value unit` lines.
bench *ARGS:
    sh scripts/bench.sh {{ARGS}}

# Generate the lexicon types.
gen:
    go generate ./lexicons

# Build the one static, stripped binary into .bin/spindle.
build:
    go build -trimpath -ldflags "-s -w" -o .bin/spindle ./cmd/spindle

# Fuzz every parser of outside bytes for a while each; `just fuzz 60s` takes longer.
fuzz TIME="10s":
    sh scripts/fuzz.sh {{TIME}}
