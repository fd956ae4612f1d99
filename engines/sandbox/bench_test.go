package sandbox_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/engines/sandbox/sandboxtest"
)

// BenchmarkStart measures, in turns, a bare `runsc run` of a shell and Open with its first command, both up to the guest's own clock, and
// then further commands. The figures are medians in milliseconds; ratio is first step to bare.
func BenchmarkStart(b *testing.B) {
	e := sandboxtest.New(b)
	var bare, first, step []float64
	n := 0
	for b.Loop() {
		n++
		began := time.Now()
		out, err := e.Bare(b.Context(), "", "date +%s%N")
		require.NoError(b, err)
		bare = append(bare, since(b, began, string(out)))

		began = time.Now()
		a, err := e.Open(b.Context(), engines.Spec{ID: fmt.Sprintf("bench-%d", n)})
		require.NoError(b, err)
		first = append(first, since(b, began, date(b, a)))
		for range 3 {
			began = time.Now()
			date(b, a)
			step = append(step, float64(time.Since(began).Microseconds())/1000)
		}
		require.NoError(b, a.Close(b.Context()))
	}
	b.ReportMetric(median(bare), "ms-bare")
	b.ReportMetric(median(first), "ms-first-step")
	b.ReportMetric(median(first)/median(bare), "ratio")
	b.ReportMetric(median(step), "ms-step")
}

func date(b *testing.B, a engines.Attempt) string {
	var out bytes.Buffer
	_, err := a.Run(b.Context(), engines.Command{Script: "date +%s%N", Stdout: &out})
	require.NoError(b, err)
	return out.String()
}

// since is from began to a guest's clock, in milliseconds.
func since(b *testing.B, began time.Time, nanos string) float64 {
	n, err := strconv.ParseInt(strings.TrimSpace(nanos), 10, 64)
	require.NoError(b, err)
	return float64(time.Unix(0, n).Sub(began).Microseconds()) / 1000
}

func median(l []float64) float64 {
	slices.Sort(l)
	return l[len(l)/2]
}
