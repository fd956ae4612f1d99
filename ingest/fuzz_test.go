package ingest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

// FuzzCalls reads what callers send. A push that passes names one ref that git itself would take, and two full
// object names; nothing that passes could be an option, and its key tells it from every other.
func FuzzCalls(f *testing.F) {
	f.Add("refs/heads/main", zeros, commitA, "ci.skip", "name", "value", "k")
	f.Add("--upload-pack=touch /tmp/pwn", "-p", "", "a\nb", "LD_PRELOAD", "\x00", "")
	f.Add("refs/heads/-x", strings.Repeat("0", 64), strings.Repeat("a", 64), "", "A=B", "", ":")
	f.Add("refs/heads/a:b", commitA, commitA, "", "", "", "a:b")
	f.Add("refs/heads/ünïcode/ß", commitA, zeros, "\xff", "é", "\xff", strings.Repeat("k", 300))
	f.Add("refs/heads/main.lock", commitA, commitB, "", "", "", "")
	git, missing := exec.LookPath("git")
	f.Fuzz(func(t *testing.T, ref, old, now, option, key, value, idem string) {
		if checkPush(PushCall{Ref: ref, Old: old, New: now, Options: []string{option}}) == nil {
			require.True(t, strings.HasPrefix(ref, "refs/"))
			require.NotContains(t, ref, "/-")
			require.NotContains(t, ref, ":", "the key of a push has colons between its parts")
			require.LessOrEqual(t, len(ref), maxRef)
			require.Regexp(t, `^([0-9a-f]{40}|[0-9a-f]{64})$`, now)
			require.NotContains(t, option, "\n")
			if missing == nil && strings.Count(ref, "/") > 1 && len(ref)%16 == 0 {
				require.NoError(t, exec.CommandContext(t.Context(), git, "check-ref-format", ref).Run(), "git would not take %q", ref)
			}
		}
		if checkManual(ManualCall{Commit: now, Inputs: []pipeline.Input{{Key: key, Value: value}}, Only: []string{option}, Key: idem}) == nil {
			require.Regexp(t, `^[A-Za-z_][A-Za-z0-9_-]*$`, key)
			require.NotContains(t, value, "\x00")
			require.NotEmpty(t, idem)
			require.False(t, zero(now))
		}
	})
}
