// Command ingest measures the reading of a record stream: how many frames a second come to be committed, of a stream of
// which one in a hundred is ours beside what a reader does that only reads, and of one that is all ours; and how long
// it takes from a frame's being told until its hint can be seen in the store.
//
// The host is another process, the socket is real, and every commit is synced. This process has one processor for the
// comparison with the bare reader, and all for the rest.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"spindle/bench/internal/measure"
	"spindle/ingest"
	"spindle/internal/clock"
	"spindle/rbac"
	"spindle/store"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	mixed := flag.Int("mixed", 500_000, "frames of the mixed stream")
	all := flag.Int("all", 100_000, "frames of the stream that is all ours")
	paced := flag.Int("paced", 20_000, "frames of the stream of 2,000 a second")
	rounds := flag.Int("rounds", 3, "rounds of the mixed stream; the middle one counts")
	profile := flag.String("cpuprofile", "", "file for a profile of the processor")
	producer := flag.Bool("produce", false, "be the host")
	flag.Parse()
	if *producer {
		return produce(ctx)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return fmt.Errorf("make the profile: %w", err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("begin the profile: %w", err)
		}
		defer func() { pprof.StopCPUProfile(); err = errors.Join(err, f.Close()) }()
	}
	host, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b := bench{host: host}
	if err := b.compare(ctx, *mixed, *rounds); err != nil {
		return err
	}
	if err := b.durable(ctx, *all); err != nil {
		return err
	}
	return b.latency(ctx, *paced)
}

// start runs the host as a process of its own.
func start(ctx context.Context) (host string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-produce")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, fmt.Errorf("start the host: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("start the host: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the host: %w", err)
	}
	host, err = bufio.NewReader(out).ReadString('\n')
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("start the host: %w", err), stop())
	}
	return strings.TrimSpace(host), stop, nil
}

type bench struct{ host string }

func (b bench) address(n, ours, rate int) string {
	return fmt.Sprintf("ws://%s/subscribe?n=%d&ours=%d&rate=%d", b.host, n, ours, rate)
}

// compare reads the mixed stream bare and through ingest, in turn, on one processor.
func (b bench) compare(ctx context.Context, n, rounds int) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var bare, whole, ratio []float64
	var size float64
	for range rounds {
		spent := processor()
		rate, mean, err := b.bare(ctx, n)
		if err != nil {
			return err
		}
		alone := processor() - spent
		spent = processor()
		bare, size = append(bare, rate), mean
		took, err := b.ingest(ctx, b.address(n, 100, 0), n, n/100, nil)
		if err != nil {
			return err
		}
		whole = append(whole, float64(n)/took.Seconds())
		ratio = append(ratio, alone.Seconds()/(processor()-spent).Seconds())
	}
	slices.Sort(ratio)
	slices.Sort(bare)
	slices.Sort(whole)
	mid := rounds / 2
	measure.Print("ingest_frame_size", size, "B")
	measure.Print("ingest_bare_rate", bare[mid], "frames/s")
	measure.Print("ingest_mixed_rate", whole[mid], "frames/s")
	measure.Print("ingest_mixed_to_bare", whole[mid]/bare[mid], "ratio")
	measure.Print("ingest_mixed_to_bare_processor", ratio[mid], "ratio")
	return nil
}

// processor is the time of a processor that this process has taken. Unlike the time on the wall it does not depend on
// who else is busy on the machine.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bare only reads.
func (b bench) bare(ctx context.Context, n int) (rate, size float64, err error) {
	d := websocket.Dialer{ReadBufferSize: 64 << 10}
	ws, _, err := d.DialContext(ctx, b.address(n, 100, 0), nil)
	if err != nil {
		return 0, 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = ws.Close() }()
	buf := make([]byte, 64<<10)
	total := 0
	began := time.Now()
	for range n {
		_, r, err := ws.NextReader()
		if err != nil {
			return 0, 0, fmt.Errorf("read: %w", err)
		}
		for {
			m, err := r.Read(buf)
			total += m
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, 0, fmt.Errorf("read: %w", err)
			}
		}
	}
	return float64(n) / time.Since(began).Seconds(), float64(total) / float64(n), nil
}

// durable reads a stream that is all ours.
func (b bench) durable(ctx context.Context, n int) error {
	took, err := b.ingest(ctx, b.address(n, 1, 0), n, n, nil)
	if err != nil {
		return err
	}
	measure.Print("ingest_ours_rate", float64(n)/took.Seconds(), "hints/s")
	return nil
}

// latency reads 2,000 frames a second of which one in ten is ours.
func (b bench) latency(ctx context.Context, n int) error {
	var seen measure.Samples
	if _, err := b.ingest(ctx, b.address(n, 10, 2000), n, n/10, &seen); err != nil {
		return err
	}
	seen.Print("ingest_told_to_visible")
	return nil
}

// ingest follows the stream at address with a store of its own until the hints are committed that it holds.
func (b bench) ingest(ctx context.Context, address string, frames, hints int, seen *measure.Samples) (took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "spindle-bench-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "spindle.db"), Admission: rbac.Open, Owner: "did:web:boss.test"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	counting := &counter{Store: s, want: hints, seen: seen, done: make(chan struct{})}
	in := ingest.New(ingest.Config{
		Store: counting, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler), Count: func(string) {},
		Health: func(string, bool, string) {}, Dial: new(net.Dialer).DialContext,
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reading sync.WaitGroup
	defer reading.Wait()
	began := time.Now()
	var ferr error
	reading.Go(func() { ferr = in.Follow(ctx, address) })
	select {
	case <-counting.done:
	case <-time.After(5 * time.Minute):
		ferr = errors.New("the stream was not committed within five minutes")
	}
	took = time.Since(began)
	cancel()
	reading.Wait()
	if got := in.Stats().Seen; ferr == nil && got < int64(frames) {
		ferr = fmt.Errorf("%d of %d frames were read", got, frames)
	}
	return took, ferr
}

// counter is the store, and counts the hints that are durable.
type counter struct {
	*store.Store
	want int
	seen *measure.Samples
	done chan struct{}
}

// Accept implements ingest.Store.
func (c *counter) Accept(ctx context.Context, e store.Effects) (store.Accepted, error) {
	a, err := c.Store.Accept(ctx, e)
	if err != nil || c.want <= 0 {
		return a, err
	}
	now := time.Now()
	for _, r := range e.Rechecks {
		c.want--
		at, _, _ := strings.Cut(r.Rkey, "-")
		if ns, err := strconv.ParseInt(at, 10, 64); err == nil && c.seen != nil {
			c.seen.Add(now.Sub(time.Unix(0, ns)))
		}
	}
	if c.want <= 0 {
		close(c.done)
	}
	return a, nil
}
