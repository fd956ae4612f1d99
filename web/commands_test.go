package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/logs"
)

// Groups and annotations are shown as such; what asks for nothing, and the spindle's own words, are text.
func TestGroupsAndNotesAreShown(t *testing.T) {
	t.Parallel()
	r := newReader(time.Time{})
	show := func(stream, text string) (out string, class string) {
		l := r.line(1, logs.Line{Kind: logs.Data, Stream: stream, Content: text})
		for i, s := range l.Spans {
			if i == 0 {
				class = s.Class
			}
			out += s.Text
		}
		return out, class
	}
	for text, want := range map[string]string{
		"::group::Build\n":                   "▾ Build",
		"--- Test\n":                         "▾ Test",
		"::error file=a.go,line=3::it broke": "error: a.go:3: it broke",
		"::warning title=Old::a%0Ab\u202e":   "warning: Old: a b[U+202E]",
		"::unknown::x\n":                     "::unknown::x",
		"--- a/file.go\n":                    "--- a/file.go",
		"::error::<script>alert(1)</script>": "error: <script>alert(1)</script>",
	} {
		got, _ := show("stdout", text)
		require.Equal(t, want, got, "%q", text)
	}
	_, class := show("stderr", "::error::x")
	require.Equal(t, "f1 bo", class)
	got, _ := show("", "::error::x")
	require.Equal(t, "::error::x", got, "the spindle's own words ask for nothing")
}
