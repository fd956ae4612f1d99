package world

import (
	"context"
	"fmt"

	"spindle/devnet"
)

// Hello makes the repository that the story is about, empty and pointed at the world's spindle.
func (w *World) Hello(ctx context.Context) (*devnet.Repo, error) {
	r, err := w.Net.CreateRepo(ctx, w.Owner, "hello", devnet.RepoOptions{Spindle: Hostname})
	if err != nil {
		return nil, fmt.Errorf("make the repository hello: %w", err)
	}
	return r, w.Client(nil).Served(ctx, r.DID.String())
}

// Secret is the name of the secret that the story sets, and SecretValue its value: a value that must appear in
// no log, page or answer.
const (
	Secret      = "DEPLOY_TOKEN"
	SecretValue = "s3cr3t-of-the-demo-4711"
)

// HelloFiles is the repository's first commit: a program of a few lines of shell, its tests, and three workflows.
func HelloFiles() map[string]string {
	return map[string]string{
		"greet.sh": greet("cats"),
		"test.sh": `#!/bin/sh
# Twelve checks of greet.sh; prints TAP with colours and fails if one does.
bad=0; i=0
check() {
  i=$((i + 1)); got=$(sh greet.sh "$1")
  if [ "$got" = "$2" ]; then
    printf '\033[32mok\033[0m %d - greet %s says "%s"\n' "$i" "$1" "$got"
  else
    printf '\033[31mnot ok\033[0m %d - greet %s: expected "%s", got "%s"\n' "$i" "$1" "$2" "$got" >&2; bad=$((bad + 1))
  fi
}
echo "1..12"
check 0 "0 cats"; check 1 "1 cat"
for n in 2 3 4 5 6 7 8 9 10 11; do check "$n" "$n cats"; done
echo "passed $((i - bad)) of $i"
[ "$bad" = 0 ]
`,
		".tangled/workflows/lint.yml": `when:
  - event: [push, pull_request]
    branch: ["**"]
engine: sandbox
steps:
  - name: syntax
    command: sh -n greet.sh && sh -n test.sh && echo "the shell reads both files"
`,
		".tangled/workflows/test.yml": `when:
  - event: [push, pull_request]
    branch: ["**"]
engine: sandbox
steps:
  - name: unit tests
    command: sh test.sh
  - name: summary
    command: |
      echo "commit $TANGLED_COMMIT_SHA of $TANGLED_REPO_REPO_DID"
      echo "run by $(id -un) on $(uname -s)"
`,
		".tangled/workflows/deploy.yml": `when:
  - event: [push, pull_request]
    branch: ["**"]
engine: sandbox
steps:
  - name: package
    command: awk '{ n += length($0) } END { print NR " lines, " n " characters" }' greet.sh
  - name: release
    command: |
      if [ -n "$DEPLOY_TOKEN" ]; then
        echo "releasing with the token $DEPLOY_TOKEN"
      else
        echo "no token here: nothing is released"
      fi
`,
	}
}

// Broken is the change that breaks a test, and Fixed the one that mends it.
func Broken() map[string]string { return map[string]string{"greet.sh": greet("cat")} }

// Fixed is HelloFiles' program again.
func Fixed() map[string]string { return map[string]string{"greet.sh": greet("cats")} }

func greet(plural string) string {
	return `#!/bin/sh
# greet COUNT says how many cats there are.
case "$1" in
  1) echo "1 cat" ;;
  *) echo "$1 ` + plural + `" ;;
esac
`
}
