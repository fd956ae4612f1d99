package logs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/internal/clock"
)

// B-114: a secret with what no reader sees in its middle reads whole on a page, so it is masked, however it is cut.
func TestB114EscapesInsideASecret(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	for name, text := range map[string]string{
		"colour":           "corr\x1b[31mect-horse",
		"colours":          "\x1b[1mc\x1b[0mo\x1b[1mr\x1b[0mrect\x1b[38;5;12m-horse",
		"title":            "correct\x1b]0;a title\x07-horse",
		"title, long end":  "correct\x1b]0;a title\x1b\\-horse",
		"link":             "correct\x1b]8;;https://example.com\x1b\\-horse",
		"charset":          "correct\x1b(B-horse",
		"NUL":              "correct\x00-horse",
		"backspace":        "correct-\bhorse",
		"C1":               "correct\u0085-horse",
		"delete":           "correct\x7f-horse",
		"sequence at ends": "correct-hors\x1b[0me",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for cut := range len(text) {
				got := masked([]string{secret}, "say "+text[:cut], text[cut:]+" now\n")
				require.Contains(t, got, "say ", "cut at %d", cut)
				require.Contains(t, got, mark, "cut at %d: %q", cut, got)
				require.NotContains(t, string(Plain([]byte(got))), secret, "cut at %d", cut)
				require.True(t, strings.HasSuffix(got, " now\n"), "%q", got)
			}
		})
	}
	// What is no secret keeps its colours.
	const plain = "\x1b[31mred\x1b[0m and \x1b]0;title\x07done\x1b"
	require.Equal(t, plain, masked([]string{secret}, plain[:5], plain[5:]))
	// A sequence that never ends is not waited for for ever.
	long := "\x1b]" + strings.Repeat("x", 2*maxEscape)
	require.Equal(t, long, masked([]string{secret}, long[:maxEscape], long[maxEscape:]))
}

// How the stream is cut does not change what is shown, with escapes too.
func TestB114EscapesCutAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"abcdef", "abc", "def", "ab", "\x1b[1m", "\x1b", "[1m", "\x1b]0;t\x07", "\x07", "\x00", "\u0085", "\n", " ", "é"})
		text := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "")
		whole := masked([]string{"abcdef"}, text)
		var parts []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		if got := masked([]string{"abcdef"}, parts...); got != whole {
			t.Fatalf("%q: whole %q, in parts %q", text, whole, got)
		}
		for line := range strings.Lines(whole) {
			if strings.Contains(string(look([]byte(line), true).text), "abcdef") {
				t.Fatalf("%q shows the secret: %q", text, whole)
			}
		}
	})
}

// recorded is a Sink that notes what comes.
type recorded struct{ lines []string }

func (r *recorded) Start(step int, name, command, kind string) {
	r.lines = append(r.lines, fmt.Sprintf("start %d %s %s %s", step, name, command, kind))
}

func (r *recorded) Line(_ int, stream string, line []byte) {
	r.lines = append(r.lines, stream+":"+string(line))
}

func (r *recorded) End(step int, outcome string, exit int, reason string) {
	r.lines = append(r.lines, fmt.Sprintf("end %d %s %d %s", step, outcome, exit, reason))
}

// A live log hands everything on at once, masked.
func TestLive(t *testing.T) {
	t.Parallel()
	r := &recorded{}
	w := NewLive(r, []string{"hunter22"}, clock.Real{})
	require.NoError(t, w.StepStart(0, "is hunter22", "echo hunter22", "user"))
	write(t, w, 0, "one hunt", "er22\ntw", "o")
	require.NoError(t, w.System(0, "own hunter22"))
	require.NoError(t, w.StepEnd(0, "failed", 3, "because hunter22"))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.Equal(t, []string{
		"start 0 is *** echo *** user", "stdout:one ***\n", "stdout:two\n", ":own ***\n", "end 0 failed 3 because ***",
	}, r.lines)
}

// What a job asks to mask is masked from there on: on the line itself, in what came with it, and in other streams.
func TestAddMaskOfTheJob(t *testing.T) {
	t.Parallel()
	r := &recorded{}
	w := NewLive(r, nil, clock.Real{})
	out, errs := w.Stream(1, "stdout"), w.Stream(1, "stderr")
	for _, x := range []struct {
		to   interface{ Write([]byte) (int, error) }
		text string
	}{
		{errs, "before s3cr3t-value "}, {out, "x s3cr3t-value\n::add-mask::s3cr3t-value\ny s3cr3t-value\nz s3cr"}, {out, "3t-value\n"}, {errs, "after s3cr3t-value\n"},
	} {
		_, err := x.to.Write([]byte(x.text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.Equal(t, []string{
		"stdout:x s3cr3t-value\n", "stdout:::add-mask::***\n", "stdout:y ***\n", "stdout:z ***\n", "stderr:before *** after ***\n",
	}, r.lines)
	require.Equal(t, "a *** b", w.Hide("a s3cr3t-value b"))
}

// A job cannot make the masker large.
func TestAddMaskIsBounded(t *testing.T) {
	t.Parallel()
	r := &recorded{}
	w := NewLive(r, nil, clock.Real{})
	var b strings.Builder
	for i := range maxAdded + 10 {
		fmt.Fprintf(&b, "::add-mask::value-%07d\n", i)
	}
	write(t, w, 0, b.String())
	require.Equal(t, maxAdded, w.added)
	require.Equal(t, "value-0001009 ***", w.Hide("value-0001009 value-0000000"), "the rest is text")
}

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Command{
		"--- Build\n":          {Name: Group, Text: "Build"},
		"+++ Test it":          {Name: GroupOpen, Text: "Test it"},
		"::group::Install\r\n": {Name: Group, Text: "Install"},
		"::endgroup::":         {Name: EndGroup},
		"::error file=a.go,line=3,col=7::broken%0Aa": {Name: ErrorNote, Text: "broken\na", File: "a.go", Line: 3, Column: 7},
		"::warning title=Old%3A one::careful":        {Name: WarnNote, Text: "careful", Title: "Old: one"},
		"  ::notice::hi":                             {Name: NoticeNote, Text: "hi"},
		"\x1b[1m::error::x\x1b[0m":                   {Name: ErrorNote, Text: "x"},
		"::error line=-1,line=x,file=::y":            {Name: ErrorNote, Text: "y"},
		"::error line=99999999999::y":                {Name: ErrorNote, Text: "y"},
		"::add-mask::abc":                            {Name: AddMask, Text: "abc"},
	} {
		got, ok := ParseCommand([]byte(line))
		require.True(t, ok, "%q", line)
		require.Equal(t, want, got, "%q", line)
	}
	for _, line := range []string{
		"", "text", "::", "::set-output name=x::y", "::error", "error::x", "--- a/file.go\n", "+++ b/file.go", "--- FAIL: TestX (0.00s)", "    --- FAIL: TestX (0.00s)",
		"---", "--- ", "--- old\t2024-01-01", "::add-mask::", "::group", ":: group::x", strings.Repeat(":", 10_000), "::error::" + strings.Repeat("x", 9<<10),
	} {
		_, ok := ParseCommand([]byte(line))
		require.False(t, ok, "%q", line)
	}
}

func FuzzParseCommand(f *testing.F) {
	f.Add([]byte("::error file=a,line=1::x\n"))
	f.Add([]byte("\x1b]0;::group::\x07--- x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := ParseCommand(b)
		if ok && (c.Line < 0 || c.Line > maxNumber || len(c.File) > maxFile || strings.Contains(c.File, "\n")) {
			t.Fatalf("%q: %+v", b, c)
		}
	})
}
