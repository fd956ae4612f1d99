package measure

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Main runs a benchmark until it is done or interrupted and ends the process with 0 or 1.
func Main(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	load()
	err := run(ctx)
	load()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// Note tells a person something that is no figure.
func Note(format string, args ...any) { fmt.Fprintf(os.Stderr, "# "+format+"\n", args...) }

// load notes how busy the machine is (proc_loadavg(5)): with more than a part of a core taken by others, times say
// little.
func load() {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		Note("%d cores, load average %s", runtime.NumCPU(), strings.TrimSpace(string(b)))
	}
}

// Print prints one figure.
func Print(name string, value float64, unit string) { fmt.Printf("%s %.2f %s\n", name, value, unit) }

// Samples are durations of one kind. The zero value is empty.
type Samples []time.Duration

// Add adds a sample.
func (s *Samples) Add(d time.Duration) { *s = append(*s, d) }

// Quantile is the smallest sample that at least the fraction q of all samples does not exceed; 0 without samples.
func (s Samples) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	i := int(q*float64(len(sorted))+0.9999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// P50 is the median.
func (s Samples) P50() time.Duration { return s.Quantile(0.5) }

// Print prints name_p50 and name_p95 in milliseconds.
func (s Samples) Print(name string) {
	Print(name+"_p50", Millis(s.P50()), "ms")
	Print(name+"_p95", Millis(s.Quantile(0.95)), "ms")
}

// Millis is d in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
