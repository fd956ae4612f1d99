package logs

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
)

func openReal(b *testing.B, lim Limits) *Logs {
	b.Helper()
	l, err := Open(Config{Dir: b.TempDir(), Clock: clock.Real{}, Limits: lim})
	require.NoError(b, err)
	return l
}

// BenchmarkAppend writes lines of 80 bytes, each with a call of its own or in calls of 32 KiB as pipes give them.
func BenchmarkAppend(b *testing.B) {
	line := append(bytes.Repeat([]byte("x"), 79), '\n')
	for _, secrets := range []int{0, 30} {
		var mask []string
		for i := range secrets {
			mask = append(mask, fmt.Sprintf("secret-number-%08d", i))
		}
		for name, n := range map[string]int{"line": 1, "32KiB": 409} {
			b.Run(fmt.Sprintf("write=%s/secrets=%d", name, secrets), func(b *testing.B) {
				l := openReal(b, Limits{Bytes: 1 << 50})
				w, err := l.Create(ref, mask)
				require.NoError(b, err)
				o := w.Stream(0, "stdout")
				part := bytes.Repeat(line, n)
				b.SetBytes(int64(len(part)))
				for b.Loop() {
					if _, err := o.Write(part); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "lines/s")
				require.NoError(b, w.Close())
			})
		}
	}
}

// BenchmarkFollow is from the call that writes a line to a waiting reader that has it.
func BenchmarkFollow(b *testing.B) {
	for name, idle := range map[string]bool{"idle": true, "busy": false} {
		b.Run(name, func(b *testing.B) {
			c := clock.NewManual(noon)
			l, err := Open(Config{Dir: b.TempDir(), Clock: c})
			require.NoError(b, err)
			w, err := l.Create(ref, nil)
			require.NoError(b, err)
			o := w.Stream(0, "stdout")
			got := make(chan time.Time)
			done := make(chan struct{})
			go func() {
				defer close(done)
				var offset int64
				for {
					_, next, ended, err := l.Follow(b.Context(), ref, offset, 100)
					if err != nil || ended {
						return
					}
					offset = next
					got <- time.Now()
				}
			}()
			var sum time.Duration
			for b.Loop() {
				if idle {
					c.Advance(time.Second) // the last output is long ago
				}
				start := time.Now()
				if _, err := o.Write([]byte("a line of output\n")); err != nil {
					b.Fatal(err)
				}
				sum += (<-got).Sub(start)
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "us/line")
			require.NoError(b, w.Close())
			<-done
		})
	}
}

// BenchmarkTail is the last 20 lines of a step whose log has this size, with and without the index.
func BenchmarkTail(b *testing.B) {
	for _, mib := range []int{1, 100} {
		l := openReal(b, Limits{Bytes: 1 << 50})
		w, err := l.Create(ref, nil)
		require.NoError(b, err)
		require.NoError(b, w.StepStart(0, "s", "", "user"))
		o := w.Stream(0, "stdout")
		part := bytes.Repeat(append(bytes.Repeat([]byte("x"), 79), '\n'), 400)
		for w.size < int64(mib)<<20 {
			_, err := o.Write(part)
			require.NoError(b, err)
		}
		require.NoError(b, o.Close())
		require.NoError(b, w.StepEnd(0, "success", 0, ""))
		require.NoError(b, w.Close())
		tail := func(b *testing.B) {
			lines, err := l.Tail(b.Context(), ref, 0, 20)
			require.NoError(b, err)
			require.Len(b, lines, 20)
		}
		b.Run(fmt.Sprintf("MiB=%d", mib), func(b *testing.B) {
			for b.Loop() {
				tail(b)
			}
		})
		b.Run(fmt.Sprintf("MiB=%d/index=none", mib), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, os.Remove(l.path(ref)+indexSuffix))
				tail(b)
			}
		})
	}
}
