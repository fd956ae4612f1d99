package logs

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ref = Ref{Pipeline: "3lqzexample22", Workflow: "test.yml", Attempt: 1}

var noon = time.Date(2025, 3, 4, 12, 0, 0, 123_000_000, time.UTC)

// open is a new folder of logs whose clock stands still.
func open(t testing.TB, lim Limits) *Logs {
	t.Helper()
	return openIn(t, t.TempDir(), lim)
}

func openIn(t testing.TB, dir string, lim Limits) *Logs {
	t.Helper()
	l, err := Open(Config{Dir: dir, Clock: clock.NewManual(noon), Limits: lim})
	require.NoError(t, err)
	return l
}

func create(t testing.TB, l *Logs, mask ...string) *Writer {
	t.Helper()
	w, err := l.Create(ref, mask)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() }) // for a test that failed in between
	return w
}

// write gives each part to a new stream in a call of its own and closes the stream.
func write(t testing.TB, w *Writer, step int, parts ...string) {
	t.Helper()
	o := w.Stream(step, "stdout")
	for _, p := range parts {
		n, err := io.WriteString(o, p)
		require.NoError(t, err)
		require.Equal(t, len(p), n)
	}
	require.NoError(t, o.Close())
}

// all reads a log from the offset to its present end.
func all(t testing.TB, l *Logs, offset int64) []Line {
	t.Helper()
	var out []Line
	for {
		lines, next, ended, err := l.Read(t.Context(), ref, offset, 100)
		require.NoError(t, err)
		out = append(out, lines...)
		if ended || len(lines) == 0 {
			return out
		}
		offset = next
	}
}

// contents are what the data lines say.
func contents(lines []Line) []string {
	var out []string
	for _, l := range lines {
		if l.Kind == Data {
			out = append(out, l.Content)
		}
	}
	return out
}

// text is a log's data put together again.
func text(t testing.TB, l *Logs) string {
	t.Helper()
	return strings.Join(contents(all(t, l, 0)), "")
}

// raw is the log's file.
func raw(t testing.TB, l *Logs) string {
	t.Helper()
	b, err := os.ReadFile(l.path(ref))
	require.NoError(t, err)
	return string(b)
}

// follow reads with Follow until the log has ended or ctx has.
func follow(ctx context.Context, l *Logs, offset int64, most int) (lines []Line, err error) {
	for {
		got, next, ended, err := l.Follow(ctx, ref, offset, most)
		lines = append(lines, got...)
		if err != nil || ended {
			return lines, err
		}
		offset = next
	}
}

// The file is what other spindles write too, so every byte of it is fixed.
func TestFileFormat(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l, "hunter22")
	require.NoError(t, w.StepStart(0, "Build <all> & test", "go build ./...\ngo test \"./...\"", "user"))
	write(t, w, 0, "plain\n", "tab\t \"quoted\" back\\slash <&>\n", "\x1b[31mred\x1b[0m\r\n", "a\x00b\xff\n", "hunter22 é 日本 \u2028\n", "no end")
	e := w.Stream(0, "stderr")
	_, err := io.WriteString(e, "oops\n")
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, w.System(0, "stopped: hunter22\nsecond"))
	require.NoError(t, w.StepEnd(0, "failed", 7, "exit status 7"))
	require.NoError(t, w.StepStart(1, "next", "", "system"))
	require.NoError(t, w.StepEnd(1, "success", 0, ""))
	require.NoError(t, w.System(-1, "done\n"))
	require.NoError(t, w.Close())
	const at = `"time":"2025-03-04T12:00:00.123Z"`
	require.Equal(t, strings.Join([]string{
		`{"kind":"control","content":"Build \u003call\u003e \u0026 test",` + at + `,"step_id":0,"step_status":"start","step_kind":"user","step_command":"go build ./...\ngo test \"./...\""}`,
		`{"kind":"data","content":"plain\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"tab\t \"quoted\" back\\slash <&>\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"\u001b[31mred\u001b[0m\r\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"a\u0000b` + "\uFFFD" + `\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"*** é 日本 ` + "\u2028" + `\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"no end\n",` + at + `,"step_id":0,"stream":"stdout"}`,
		`{"kind":"data","content":"oops\n",` + at + `,"step_id":0,"stream":"stderr"}`,
		`{"kind":"data","content":"stopped: ***\n",` + at + `,"step_id":0}`,
		`{"kind":"data","content":"second\n",` + at + `,"step_id":0}`,
		`{"kind":"control","content":"exit status 7",` + at + `,"step_id":0,"step_status":"end","step_outcome":"failed","exit_code":7}`,
		`{"kind":"control","content":"next",` + at + `,"step_id":1,"step_status":"start","step_kind":"system"}`,
		`{"kind":"control","content":"",` + at + `,"step_id":1,"step_status":"end","step_outcome":"success"}`,
		`{"kind":"data","content":"done\n",` + at + `,"step_id":-1}`,
		``,
	}, "\n"), raw(t, l))

	r, err := l.OpenRaw(ref)
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Equal(t, raw(t, l), string(b))
}

func TestNamesOfFiles(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	base := func(r Ref) string { return strings.TrimPrefix(l.path(r), l.c.Dir+"/") }
	require.Equal(t, "3lq-test.log", base(Ref{"3lq", "test", 1}))
	require.Equal(t, "3lq-test-yml.log", base(Ref{"3lq", "test.yml", 1}))
	require.Equal(t, "3lq-test-yml.2.log", base(Ref{"3lq", "test.yml", 2}))
	seen := map[string]Ref{}
	for _, p := range []string{"3lq", "../3lq", "..", "", "a/b", "a\x00b", "日本"} {
		for _, w := range []string{"a.b.yml", "a-b.yml", "a/b.yml", "../../etc/passwd", "a.b.yaml", ".hidden", "a.b.yml.2", "x\n"} {
			for _, n := range []int{1, 2, 22} {
				r := Ref{p, w, n}
				name := base(r)
				require.NotContains(t, name, "/")
				require.NotContains(t, name, "..")
				require.NotContains(t, name, "\x00")
				require.False(t, strings.HasPrefix(name, "."), name)
				require.NotContains(t, seen, name, "%v and %v", r, seen[name])
				seen[name] = r
			}
		}
	}
}

func TestCreateAndRemove(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	require.False(t, l.Exists(ref))
	w := create(t, l)
	require.True(t, l.Exists(ref))
	_, err := l.Create(ref, nil)
	require.ErrorIs(t, err, os.ErrExist)
	require.ErrorContains(t, err, "3lqzexample22/test.yml attempt 1")
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "twice is fine")
	_, err = l.Create(ref, nil)
	require.ErrorIs(t, err, os.ErrExist, "nothing is appended to a log that has ended")
	require.NoError(t, l.Remove(ref))
	require.NoError(t, l.Remove(ref))
	require.False(t, l.Exists(ref))
	left, err := os.ReadDir(l.c.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestNothingIsWrittenAfterClose(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	o := w.Stream(0, "stdout")
	_, err := io.WriteString(o, "held back")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, "held back\n", text(t, l), "what an open stream had is not lost")
	_, err = io.WriteString(o, "late\n")
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, o.Close())
	_, err = io.WriteString(w.Stream(0, "stdout"), "late\n")
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorIs(t, w.System(0, "late"), os.ErrClosed)
	require.ErrorIs(t, w.StepStart(1, "late", "", "user"), os.ErrClosed)
	require.ErrorIs(t, w.StepEnd(1, "success", 0, ""), os.ErrClosed)
	require.Equal(t, "held back\n", text(t, l))
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 7, 64<<10 + 1} {
		_, err := Open(Config{Dir: t.TempDir(), Clock: clock.Real{}, Limits: Limits{Line: n}})
		require.ErrorContains(t, err, "allowed are 8 to 65536")
	}
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(Config{Dir: file, Clock: clock.Real{}})
	require.Error(t, err)
}
