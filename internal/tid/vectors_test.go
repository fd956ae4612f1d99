package tid

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
)

func vectors(t *testing.T, name string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("testdata/interop/" + name)
	require.NoError(t, err)
	for _, l := range strings.Split(string(b), "\n") {
		if l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// TestVectorsTID reads the vectors as every TID is read here, and makes TIDs that the same rules accept, also at the
// ends of what they can tell.
func TestVectorsTID(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t, "tid_syntax_valid.txt") {
		_, err := syntax.ParseTID(v)
		require.NoError(t, err, v)
	}
	for _, v := range vectors(t, "tid_syntax_invalid.txt") {
		_, err := syntax.ParseTID(v)
		require.Error(t, err, v)
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.Date(2026, 9, 1, 0, 0, 0, 1000, time.UTC), time.UnixMicro(1<<53 - 1000)} {
		s := New(clock.NewManual(at))
		last := ""
		for range 100 {
			next := s.Next()
			id, err := syntax.ParseTID(next)
			require.NoError(t, err)
			require.Greater(t, next, last)
			require.WithinDuration(t, at, id.Time(), time.Millisecond)
			last = next
		}
	}
}
