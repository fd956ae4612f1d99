package knot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// small fills a repository with three workflow files and forty others of 2 kB.
func small(o *origin, i int) string {
	m := workflows(map[string]node{"a.yml": text(fmt.Sprint("a", i)), "b.yml": text("b"), "c.yml": text("c")})
	src := map[string]node{}
	for k := range 40 {
		src[fmt.Sprintf("f%d", k)] = text(noise(2000 + k))
	}
	m["src"] = dir(src)
	return o.commit("refs/heads/main", fmt.Sprint("c", i), m)
}

// measure runs fn b.N times and reports the median.
func measure(b *testing.B, fn func(i int)) {
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		fn(i)
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
}

// BenchmarkWorkflows: the files of a commit that was never seen, in a repository never seen (cold), of a
// next commit of a known one (push), and of a commit seen before (known).
func BenchmarkWorkflows(b *testing.B) {
	h := newHost(b)
	o := h.repo(repoDID)
	src := h.source(repoDID)
	var shas []string
	for i := range 25 {
		shas = append(shas, small(o, i))
	}
	get := func(c *Client, sha string) {
		got, err := c.Workflows(b.Context(), src, sha)
		require.NoError(b, err)
		require.Len(b, got.Files, 3)
	}
	b.Run("cold", func(b *testing.B) {
		c := newClient(b, nil)
		measure(b, func(i int) {
			require.NoError(b, c.forget(src, shas[0]))
			get(c, shas[0])
		})
	})
	b.Run("push", func(b *testing.B) {
		c := newClient(b, nil)
		measure(b, func(i int) { get(c, shas[i]) })
	})
	b.Run("known", func(b *testing.B) {
		c := newClient(b, nil)
		measure(b, func(i int) { get(c, shas[0]) })
	})
}
