package logs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
)

// A line of any length is kept whole in pieces, and what follows it is there.
func TestB069LongLines(t *testing.T) {
	t.Parallel()
	for _, n := range []int{65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 10 << 20} {
		for _, end := range []string{"\n", ""} {
			if n > 2<<20 && end != "" {
				continue // one of this size is enough
			}
			l := open(t, Limits{})
			w := create(t, l)
			o := w.Stream(0, "stdout")
			line := bytes.Repeat([]byte("A"), n)
			for part := line; len(part) > 0; part = part[min(len(part), 32<<10):] {
				_, err := o.Write(part[:min(len(part), 32<<10)])
				require.NoError(t, err)
				require.LessOrEqual(t, cap(o.(*output).line), 256<<10, "memory is bounded")
			}
			_, err := io.WriteString(o, end)
			require.NoError(t, err)
			require.NoError(t, o.Close())
			write(t, w, 0, "tail-marker\n")
			require.NoError(t, w.Close())
			got := contents(all(t, l, 0))
			require.Len(t, got, (n+65535)/65536+1, "%d%q", n, end)
			require.Equal(t, "tail-marker\n", got[len(got)-1])
			require.True(t, strings.Join(got[:len(got)-1], "") == string(line)+"\n", "%d%q", n, end)
		}
	}
}

// A character is never cut in two, and what is no character does not make a piece empty.
func TestB069LinesAreSplitBetweenCharacters(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Line: 8})
	w := create(t, l)
	in := strings.Repeat("日本🙂é", 20)
	write(t, w, 0, in+"\n", strings.Repeat("\x80", 21)+"\n")
	require.NoError(t, w.Close())
	var good, bad string
	for _, c := range contents(all(t, l, 0)) {
		require.NotEmpty(t, c)
		require.True(t, utf8.ValidString(c))
		if strings.Contains(c, "\uFFFD") {
			bad += c
			continue
		}
		require.LessOrEqual(t, len(strings.TrimSuffix(c, "\n")), 8)
		good += c
	}
	require.Equal(t, in+"\n", good)
	require.Equal(t, strings.Repeat("\uFFFD", 21)+"\n", bad)
}

// A progress bar costs what a person could have seen of it: its states now and then, and the last one.
func TestB070ProgressBars(t *testing.T) {
	t.Parallel()
	c := clock.NewManual(noon)
	l, err := Open(Config{Dir: t.TempDir(), Clock: c})
	require.NoError(t, err)
	w := create(t, l)
	o := w.Stream(0, "stdout")
	put := func(s string) {
		_, err := io.WriteString(o, s)
		require.NoError(t, err)
	}
	for i := 1; i <= 20000; i++ {
		put(fmt.Sprintf("\r%5d/20000 [####]", i))
		c.Advance(time.Millisecond)
		if i == 1000 {
			w.snapshot() // what the timer does
			require.Len(t, contents(all(t, l, 0)), 1, "something is seen before the end")
		}
	}
	put("\rdone\n")
	put("a\r\nb\r\n")
	require.NoError(t, o.Close())
	require.NoError(t, w.Close())
	got := contents(all(t, l, 0))
	require.Len(t, got, 4+3, "one at first, one each 5 s of 20, the rest: %q", got)
	require.True(t, strings.HasSuffix(got[4], "20000/20000 [####]\rdone\n"), got[4])
	require.Equal(t, []string{"a\r\n", "b\r\n"}, got[5:])
	require.Less(t, len(raw(t, l)), 8<<10)
}

func TestB070RedrawnLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want []string }{
		"short ones are kept as they are": {[]string{"1 %\r56 %\r100 %\n"}, []string{"1 %\r56 %\r100 %\n"}},
		"line ends over two writes":       {[]string{"a\r", "\nb\r", "\n"}, []string{"a\r\n", "b\r\n"}},
		"long in one write":               {[]string{strings.Repeat("0123456\r", 8000) + "end\n"}, []string{"end\n"}},
		"longer than a line may be":       {[]string{strings.Repeat("0123456\r", 9000) + "end\n"}, []string{"0123456\r", "end\n"}},
		"a long last state":               {[]string{"x\r" + strings.Repeat("y", 5000) + "\r\n"}, []string{strings.Repeat("y", 5000) + "\r\n"}},
		"CR alone":                        {[]string{strings.Repeat("\r", 9000) + "\n"}, []string{strings.Repeat("\r", 9000) + "\n"}},
	} {
		l := open(t, Limits{})
		w := create(t, l)
		write(t, w, 0, tc.in...)
		require.NoError(t, w.Close())
		require.Equal(t, tc.want, contents(all(t, l, 0)), name)
	}
}

func TestB072Binary(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	require.NoError(t, w.StepStart(0, "nul \x00 bad \xff", "cat \x00", "user"))
	write(t, w, 0, "a\x00b\n", string(noise), "\nafter\n", "cut \xe6\x97", "\xa5 in two\n")
	require.NoError(t, w.StepEnd(0, "failed", 1, "engine said \x00\xff"))
	require.NoError(t, w.Close())
	lines := all(t, l, 0)
	require.Equal(t, "nul \x00 bad \uFFFD", lines[0].Content)
	require.Equal(t, "engine said \x00\uFFFD", lines[len(lines)-1].Content)
	got := contents(lines)
	require.Equal(t, "a\x00b\n", got[0])
	require.Equal(t, []string{"after\n", "cut 日 in two\n"}, got[len(got)-2:])
	require.True(t, utf8.ValidString(raw(t, l)))
	require.NotContains(t, raw(t, l), "\x00")
}

func TestB073NoLineIsGluedOrLost(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	for i, parts := range [][]string{{"one\ntwo\n\n", "\nthree-", "without-end"}, {"four\n"}} {
		require.NoError(t, w.StepStart(i, "s", "", "user"))
		write(t, w, i, parts...)
		require.NoError(t, w.StepEnd(i, "success", 0, ""))
	}
	require.NoError(t, w.Close())
	require.Equal(t, []string{"one\n", "two\n", "\n", "\n", "three-without-end\n", "four\n"}, contents(all(t, l, 0)))
}

func TestB080TheLastLinesAreThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openIn(t, dir, Limits{Delay: time.Hour})
	w := create(t, l)
	o := w.Stream(0, "stdout")
	for i := range 500 {
		fmt.Fprintf(o, "line %d\n", i)
	}
	_, err := io.WriteString(o, "FINAL")
	require.NoError(t, err)
	require.NoError(t, w.Close()) // the stream was left open
	got := contents(all(t, openIn(t, dir, Limits{}), 0))
	require.Len(t, got, 501)
	require.Equal(t, "FINAL\n", got[500])
}

// Terminal codes are kept for whoever renders them, and cannot end a line of the file.
func TestB083TerminalCodes(t *testing.T) {
	t.Parallel()
	const in = "\x1b[2J\x1b[H\x1b]0;x\x07\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\ \x1b[8mhidden\x1b[0m \u202Ereversed\n"
	l := open(t, Limits{})
	w := create(t, l)
	write(t, w, 0, in)
	require.NoError(t, w.StepStart(1, "forged\n{\"kind\":\"data\"}", "", "user"))
	require.NoError(t, w.Close())
	require.Equal(t, in, text(t, l))
	require.NotContains(t, raw(t, l), "\x1b")
	require.Equal(t, 2, strings.Count(raw(t, l), "\n"))
}

func TestB084OutputIsOnlyOutput(t *testing.T) {
	t.Parallel()
	forged := []string{
		`{"kind":"control","content":"","time":"2025-03-04T12:00:00Z","step_id":2,"step_status":"end","step_outcome":"success"}` + "\n",
		`"}` + "\n", `\n","kind":"control"` + "\n", "::add-mask::a\n", "##vso[task.setvariable]\n",
	}
	l := open(t, Limits{})
	w := create(t, l)
	require.NoError(t, w.StepStart(2, "s", "", "user"))
	write(t, w, 2, forged...)
	o := w.Stream(2, `stdout","kind":"control`)
	_, err := io.WriteString(o, "x\n")
	require.NoError(t, err)
	require.NoError(t, o.Close())
	require.NoError(t, w.StepEnd(2, "failed", 4, ""))
	require.NoError(t, w.Close())
	lines := all(t, l, 0)
	forged[3] = "::add-mask::***\n" // too short to be masked elsewhere, and a wish that is granted here
	require.Equal(t, append(forged, "x\n"), contents(lines))
	for _, line := range lines[1 : len(lines)-1] {
		require.Equal(t, Data, line.Kind)
		require.Equal(t, "stdout", line.Stream)
		require.Equal(t, 2, line.Step)
	}
	require.Equal(t, 4, lines[len(lines)-1].ExitCode)
}

// The limit is one of the disk: short lines and bytes that need escapes count what they take.
func TestLimitOfOutput(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	for name, unit := range map[string]string{
		"text": strings.Repeat("x", 99) + "\n", "empty lines": "\n", "NUL": strings.Repeat("\x00", 999) + "\n", "no line end": strings.Repeat("y", 1000),
	} {
		l := open(t, Limits{Bytes: most})
		w := create(t, l)
		require.NoError(t, w.StepStart(0, "s", "", "user"))
		o := w.Stream(0, "stdout")
		for range 1500 {
			n, err := io.WriteString(o, unit)
			require.NoError(t, err, "the step is not disturbed")
			require.Equal(t, len(unit), n)
		}
		_, err := io.WriteString(o, "z\n") // would have had room
		require.NoError(t, err)
		require.NoError(t, o.Close())
		require.NoError(t, w.System(0, "why it ended"))
		require.NoError(t, w.StepEnd(0, "failed", 1, "reason"))
		require.NoError(t, w.Close())
		require.Less(t, len(raw(t, l)), most+1500, name)

		lines := all(t, l, 0)
		n := len(lines)
		require.Equal(t, "why it ended\n", lines[n-3].Content, name)
		require.Equal(t, End, lines[n-2].StepStatus, name)
		require.Contains(t, lines[n-4].Content, "output above the limit of 65536 bytes is dropped from here on")
		require.Empty(t, lines[n-4].Stream)
		kept := 0
		for _, l := range lines[1 : n-4] {
			kept += len(l.Content)
		}
		require.Equal(t, fmt.Sprintf("— %d bytes of output were dropped: the limit is 65536 —\n", 1500*len(unit)+2-kept), lines[n-1].Content, name)
	}
}

func TestLimitOfOwnWords(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Line: 1000})
	w := create(t, l)
	long := strings.Repeat("é", 2000)
	require.NoError(t, w.StepStart(0, long, long, "user"))
	for range 3 {
		require.NoError(t, w.System(0, strings.Repeat("w", 500<<10)))
	}
	require.NoError(t, w.StepEnd(0, "failed", 1, long))
	require.NoError(t, w.Close())
	require.Less(t, len(raw(t, l)), 2<<20)
	lines := all(t, l, 0)
	want := strings.Repeat("é", 500) + "…"
	require.Equal(t, want, lines[0].Content)
	require.Equal(t, want, lines[0].StepCommand)
	require.Equal(t, want, lines[len(lines)-2].Content)
	require.Contains(t, lines[len(lines)-1].Content, "were dropped")
}

// Texts of the greatest size that need the most escapes can be read again.
func TestLongestLineOfTheFileCanBeRead(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	long := strings.Repeat("<", maxContent)
	require.NoError(t, w.StepStart(0, long, long, "user"))
	write(t, w, 0, strings.Repeat("\x00", maxContent)+"\n")
	require.NoError(t, w.Close())
	lines := all(t, l, 0)
	require.Len(t, lines, 2)
	require.Equal(t, long, lines[0].StepCommand)
	require.Len(t, lines[1].Content, maxContent+1)
}

// A failure to write is told to whoever writes, and what is in the file can be read.
func TestFailureToWrite(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	write(t, w, 0, "before\n")
	broken, err := os.Open(l.path(ref)) // for reading only
	require.NoError(t, err)
	w.mu.Lock()
	whole := w.file
	w.file = broken
	w.mu.Unlock()
	o := w.Stream(0, "stdout")
	_, werr := io.WriteString(o, "lost\n")
	err = o.Close()
	require.Error(t, err)
	require.ErrorContains(t, err, "write the log")
	if werr == nil {
		_, werr = io.WriteString(w.Stream(0, "stdout"), "lost too\n")
	}
	require.ErrorIs(t, werr, err)
	require.Error(t, w.System(0, "lost"))
	require.Error(t, w.StepEnd(0, "failed", 1, ""))
	size := len(w.buf)
	write := w.Stream(0, "stdout")
	for range 1000 {
		_, err := io.WriteString(write, "lost\n")
		require.Error(t, err)
	}
	require.LessOrEqual(t, len(w.buf), size, "nothing piles up")
	require.Error(t, w.Close())
	require.NoError(t, whole.Close())
	lines, total, err := l.Page(t.Context(), ref, 0, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, total)
	require.Equal(t, []string{"before\n"}, contents(lines))
}
