package logs

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// numbers requires lines to be the data lines from..to in order.
func numbers(t testing.TB, lines []Line, from, to int) {
	t.Helper()
	got := contents(lines)
	require.Len(t, got, to-from+1)
	for i, c := range got {
		require.Equal(t, fmt.Sprintf("%d\n", from+i), c)
	}
}

// Several readers that begin at different moments, with pages of different sizes, each get every line once
// and then the end.
func TestB074LateViewersMissNothing(t *testing.T) {
	t.Parallel()
	const total = 3000
	l := open(t, Limits{Delay: time.Millisecond})
	w := create(t, l)
	var viewers sync.WaitGroup
	view := func(most int) {
		viewers.Go(func() {
			lines, err := follow(t.Context(), l, 0, most)
			if err != nil {
				t.Error(err)
				return
			}
			numbers(t, lines, 1, total)
		})
	}
	view(1)
	o := w.Stream(0, "stdout")
	for i := 1; i <= total; i++ {
		_, err := fmt.Fprintf(o, "%d\n", i)
		require.NoError(t, err)
		if i%500 == 0 {
			view(1 + i/7)
		}
	}
	require.NoError(t, o.Close())
	view(5)
	require.NoError(t, w.Close())
	view(7)
	viewers.Wait()
}

// A viewer who comes before the log, or in the moment it begins, is never told that it has ended.
func TestB075EarlyViewersAreNotToldTheEnd(t *testing.T) {
	t.Parallel()
	for range 60 { // each has its syncs of the disk
		l := open(t, Limits{Delay: time.Millisecond})
		_, _, _, err := l.Read(t.Context(), ref, 0, 1)
		require.ErrorIs(t, err, ErrNoLog)
		got := make(chan []Line)
		go func() {
			defer close(got)
			for t.Context().Err() == nil {
				lines, err := follow(t.Context(), l, 0, 10)
				if err == nil {
					got <- lines
					return
				}
			}
		}()
		w := create(t, l)
		write(t, w, 0, "1\n2\n3\n")
		require.NoError(t, w.Close())
		numbers(t, <-got, 1, 3)
	}
}

func TestFollowGoesOnFromAnOffset(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Delay: time.Millisecond})
	w := create(t, l)
	write(t, w, 0, "1\n2\n3\n")
	lines, next, ended, err := l.Follow(t.Context(), ref, 0, 2)
	require.NoError(t, err)
	require.False(t, ended)
	numbers(t, lines, 1, 2)
	lines, next, ended, err = l.Follow(t.Context(), ref, next, 2)
	require.NoError(t, err)
	require.False(t, ended)
	numbers(t, lines, 3, 3)

	// At the end of what there is Follow waits: for lines …
	wait := func() chan []Line {
		c := make(chan []Line, 1)
		go func() {
			lines, err := follow(t.Context(), l, next, 2)
			if err != nil {
				t.Error(err)
			}
			c <- lines
		}()
		return c
	}
	first, second := wait(), wait()
	write(t, w, 0, "4\n")
	// … and for the end.
	require.NoError(t, w.Close())
	numbers(t, <-first, 4, 4)
	numbers(t, <-second, 4, 4)

	lines, _, ended, err = l.Follow(t.Context(), ref, int64(len(raw(t, l))), 2)
	require.NoError(t, err)
	require.True(t, ended)
	require.Empty(t, lines)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	write(t, w, 0, "1\n")
	_, next, _, err := l.Read(t.Context(), ref, 0, 10)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, offset, _, err := l.Follow(ctx, ref, next, 10)
		if offset != next {
			t.Error("the offset moved")
		}
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_, _, _, err = l.Read(ctx, ref, 0, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// Viewers that leave as the log ends: no panic, and TestMain sees no goroutine left.
func TestB079ViewerAndStepEndTogether(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	for i := range 60 {
		r := Ref{Pipeline: "p", Workflow: "w", Attempt: i + 1}
		w, err := l.Create(r, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			var offset int64
			for ended := false; !ended; {
				var err error
				if _, offset, ended, err = l.Follow(ctx, r, offset, 1); err != nil {
					return
				}
			}
		})
		all.Go(cancel)
		all.Go(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	}
}

// A cursor that no line begins at is refused: silence would look like a quiet step.
func TestB137UnknownOffsets(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l)
	write(t, w, 0, "one\ntwo\n")
	check := func() {
		t.Helper()
		size := int64(len(raw(t, l)))
		for offset := int64(-1); offset <= size+100; offset++ {
			_, _, _, err := l.Read(t.Context(), ref, offset, 10)
			if offset == 0 || offset == size || offset == size/2 { // both lines are equally long
				require.NoError(t, err, offset)
				continue
			}
			require.ErrorIs(t, err, ErrOffset, offset)
			_, _, _, err = l.Follow(t.Context(), ref, offset, 10)
			require.ErrorIs(t, err, ErrOffset, offset)
		}
	}
	check()
	require.NoError(t, w.Close())
	check()
}

// After a kill the file ends in half a line: it is not served, and all else is as before.
func TestTornLastLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openIn(t, dir, Limits{Delay: time.Hour})
	w := create(t, l)
	require.NoError(t, w.StepStart(0, "s", "", "user"))
	o := w.Stream(0, "stdout")
	for i := 1; i <= 1000; i++ {
		fmt.Fprintf(o, "%d\n", i)
	}
	w.snapshot()
	whole := raw(t, l)
	last := strings.LastIndex(strings.TrimSuffix(whole, "\n"), "\n") + 1
	for cut := last; cut < len(whole); cut += 13 {
		killed := t.TempDir()
		m := openIn(t, killed, Limits{})
		require.NoError(t, os.WriteFile(m.path(ref), []byte(whole[:cut]), 0o600))
		lines, err := follow(t.Context(), m, 0, 100)
		require.NoError(t, err)
		numbers(t, lines, 1, 999)
		for range 2 { // the second time with the index that the first one saved
			page, total, err := m.Page(t.Context(), ref, 997, 10)
			require.NoError(t, err)
			require.EqualValues(t, 1000, total)
			numbers(t, page, 997, 999)
			tail, err := m.Tail(t.Context(), ref, 0, 3)
			require.NoError(t, err)
			numbers(t, tail, 997, 999)
		}
		require.FileExists(t, m.path(ref)+indexSuffix)
	}
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file  string
		lines int
		fails bool
	}{
		"empty": {"", 0, false}, "no JSON": {"hello\n{}\n\n[1]\nnull\n", 2, false}, "half": {`{"kind":"da`, 0, false},
		"endless line": {strings.Repeat("x", maxLine+128<<10), 0, true}, "NUL after a crash": {strings.Repeat("\x00", 4096), 0, false},
	} {
		l := open(t, Limits{})
		require.NoError(t, os.WriteFile(l.path(ref), []byte(tc.file), 0o600))
		require.NoError(t, os.WriteFile(l.path(ref)+indexSuffix, []byte(`{"lines":`), 0o600))
		lines, _, _, err := l.Read(t.Context(), ref, 0, 100)
		require.Equal(t, tc.fails, err != nil, name)
		require.Len(t, lines, tc.lines, name)
		_, total, err := l.Page(t.Context(), ref, 0, 10)
		require.Equal(t, tc.fails, err != nil, name)
		require.EqualValues(t, tc.lines, total, name)
	}
}

// Pages, offsets, steps and tails agree with the whole log, while it is written, after it, and without index.
func TestPagesOffsetsStepsTails(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Delay: time.Hour})
	_, _, err := l.Page(t.Context(), ref, 0, 1)
	require.ErrorIs(t, err, ErrNoLog)
	_, err = l.Steps(t.Context(), ref)
	require.ErrorIs(t, err, ErrNoLog)
	_, err = l.Tail(t.Context(), ref, 0, 1)
	require.ErrorIs(t, err, ErrNoLog)
	_, err = l.Offset(t.Context(), ref, 0)
	require.ErrorIs(t, err, ErrNoLog)
	_, err = l.OpenRaw(ref)
	require.ErrorIs(t, err, ErrNoLog)

	w := create(t, l)
	r := rand.New(rand.NewPCG(3, 4))
	steps := map[int]int64{}
	var n int64
	for step, count := range []int{0, 1, 254, 255, 256, 1, 700, 3} {
		steps[step] = n
		require.NoError(t, w.StepStart(step, "s", "", "user"))
		o := w.Stream(step, "stdout")
		for i := range count {
			fmt.Fprintf(o, "%d-%d %s\n", step, i, strings.Repeat("x", r.IntN(200)))
		}
		if step == 3 {
			require.NoError(t, w.System(-1, "between"))
			n++
		}
		require.NoError(t, o.Close())
		require.NoError(t, w.StepEnd(step, "success", 0, ""))
		n += int64(count) + 2
	}
	write(t, w, 7, "after the end") // a line that is not in the index's rhythm
	n++
	check := func() {
		t.Helper()
		whole := all(t, l, 0)
		require.Len(t, whole, int(n))
		got, err := l.Steps(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, steps, got)
		for _, from := range []int64{-5, 0, 1, 255, 256, 257, n - 1, n, n + 1, 1 << 60} {
			for _, count := range []int{0, 1, 300} {
				page, total, err := l.Page(t.Context(), ref, from, count)
				require.NoError(t, err)
				require.Equal(t, n, total)
				want := whole[min(max(0, from), n):min(max(0, from+int64(count)), n)]
				require.True(t, slices.Equal(want, page), "%d lines from %d", count, from)
			}
			offset, err := l.Offset(t.Context(), ref, from)
			require.NoError(t, err)
			next, _, _, err := l.Read(t.Context(), ref, offset, 1)
			require.NoError(t, err)
			at := min(max(0, from), n)
			require.True(t, slices.Equal(whole[at:min(at+1, n)], next), from)
		}
		for step := -1; step < 9; step++ {
			var want []Line
			for _, line := range whole {
				if line.Step == step && line.Kind == Data {
					want = append(want, line)
				}
			}
			for _, k := range []int{-1, 1, 256} {
				tail, err := l.Tail(t.Context(), ref, step, k)
				require.NoError(t, err)
				require.True(t, slices.Equal(want[max(0, len(want)-max(0, k)):], tail), "step %d, last %d", step, k)
			}
		}
	}
	check()
	require.NoError(t, w.Close())
	check()
	require.NoError(t, os.Remove(l.path(ref)+indexSuffix))
	check()
}

// Many writers and readers of one log at once, while secrets are added.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Delay: time.Millisecond})
	w := create(t, l)
	var writers, readers sync.WaitGroup
	const lines = 200
	for i := range 4 {
		writers.Go(func() {
			o := w.Stream(i, "stderr")
			for j := range lines {
				if _, err := fmt.Fprintf(o, "%d:%d hunter%d%d%d\n", i, j, i, i, i); err != nil {
					t.Error(err)
				}
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
		w.AddMask(fmt.Sprintf("hunter%d%d%d", i, i, i))
		readers.Go(func() {
			got, err := follow(t.Context(), l, 0, 17)
			if err != nil || len(got) != 4*lines {
				t.Errorf("%d lines, %v", len(got), err)
			}
			next := map[int]int{}
			for _, line := range got {
				if !strings.HasPrefix(line.Content, fmt.Sprintf("%d:%d ", line.Step, next[line.Step])) {
					t.Errorf("out of order: %q", line.Content)
					return
				}
				next[line.Step]++
			}
		})
		readers.Go(func() {
			_, _ = l.Tail(t.Context(), ref, i, 3)
			_, _, _ = l.Page(t.Context(), ref, 3, 3)
			_, _ = l.Steps(t.Context(), ref)
		})
	}
	writers.Wait()
	require.NoError(t, w.Close())
	readers.Wait()
}

// Output that is not followed by more reaches readers within the delay.
func TestDelayIsKept(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{Delay: 5 * time.Millisecond})
	w := create(t, l)
	o := w.Stream(0, "stdout")
	var offset int64
	for i := range 5 {
		_, err := io.WriteString(o, "x\n")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		lines, next, _, err := l.Follow(ctx, ref, offset, 10)
		cancel()
		require.NoError(t, err, i)
		require.Len(t, lines, 1)
		offset = next
	}
}
