package enginetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines"
)

// testFiles: what a command writes into its files comes back, whole, bounded, and to this command alone.
func testFiles(t *testing.T, s Suite) {
	a := open(t, s)
	names := []string{"ONE", "TWO", "THREE", "FOUR"}
	with := func(c *engines.Command) { c.Files = names }
	r := run(t, a, `printf 'a=1\nb=2' > "$ONE"; echo "$TWO" > "$TWO"; (echo late >> "$FOUR")`, with)
	require.Equal(t, "a=1\nb=2", string(r.Files["ONE"]))
	path := strings.TrimSpace(string(r.Files["TWO"]))
	require.True(t, strings.HasPrefix(path, "/"), "%q", path)
	require.NotContains(t, r.Files, "THREE", "it was left empty")
	require.Equal(t, "late\n", string(r.Files["FOUR"]))

	r = run(t, a, `test ! -s "$ONE" && test ! -s "$TWO"`, with)
	require.Equal(t, 0, r.ExitCode, "each command finds them empty")
	require.Empty(t, r.Files)

	r = run(t, a, `echo x > "$ONE"; exit 3`, with)
	require.Equal(t, 3, r.ExitCode)
	require.Equal(t, "x\n", string(r.Files["ONE"]), "also of one that failed")

	r = run(t, a, `head -c 3000000 /dev/zero > "$ONE"; printf '0\nAAAA\n' > "$TWO"`, with)
	require.Len(t, r.Files["ONE"], engines.FileBytes+1, "too much is seen to be")
	require.Equal(t, "0\nAAAA\n", string(r.Files["TWO"]))

	r = run(t, a, `echo stays; echo y > "$ONE"`, func(c *engines.Command) { c.Files = names[:1] })
	require.Equal(t, map[string][]byte{"ONE": []byte("y\n")}, r.Files)
	r = run(t, a, `echo "${ONE:-none}"`)
	require.Equal(t, "none\n", r.out, "a command without files has none")

	_, err := a.Run(t.Context(), engines.Command{Script: "true", Files: []string{"A", "B", "C", "D", "E"}})
	require.ErrorIs(t, err, engines.ErrBadSpec)
}

// testPath: folders that are given come before the machine's own.
func testPath(t *testing.T, s Suite) {
	a := open(t, s)
	r := run(t, a, `mkdir -p tools && printf '#!/bin/sh\necho mine\n' > tools/ls && chmod +x tools/ls && pwd`)
	dir := strings.TrimSpace(r.out) + "/tools"
	require.Equal(t, "mine\n", run(t, a, "ls", func(c *engines.Command) { c.Path = []string{dir} }).out)
	require.NotEqual(t, "mine\n", run(t, a, "ls").out)
	_, err := a.Run(t.Context(), engines.Command{Script: "true", Path: []string{"a:b"}})
	require.ErrorIs(t, err, engines.ErrBadSpec)
}

// testOtherShell: any program that takes -c can be the shell, and one that is not there is the job's error.
func testOtherShell(t *testing.T, s Suite) {
	a := open(t, s)
	require.Equal(t, "hi\n", run(t, a, "echo hi", shell("/bin/sh")).out)
	r := run(t, a, "echo hi", shell("no-such-shell"))
	require.Equal(t, 127, r.ExitCode)
	require.Contains(t, r.err, "no-such-shell")
}
