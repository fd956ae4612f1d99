package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sync/errgroup"
)

// stallTime is how long a layer may not move before the connection is given up, and tellEvery how often progress is told.
const (
	stallTime = time.Minute
	tellEvery = 5 * time.Second
)

var errStalled = errors.New("images: nothing came for a minute")

// build pulls and unpacks what is not here of f, and makes its root.
func (s *Store) build(ctx context.Context, r request, f *found) error {
	if _, ok := s.have(f.digest); ok {
		return nil
	}
	total := int64(0)
	for _, l := range f.layers {
		total += l.size
	}
	r.say("pulling image %s (%s): %d layers, %s", r.text, f.digest, len(f.layers), size(total))
	var got atomic.Int64
	ended := s.tell(ctx, r, &got, total)
	held, err := s.ensureLayers(ctx, r, f, func(n int64) { got.Add(n) })
	ended()
	defer s.dropLayers(held)
	if err != nil {
		return err
	}
	b := s.newBudget()
	defer b.giveBack()
	return s.assemble(ctx, r, f, b)
}

// tell says how far the pull is, until the function that it returns is called.
func (s *Store) tell(ctx context.Context, r request, got *atomic.Int64, total int64) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := int64(0); s.cfg.Clock.Sleep(ctx, tellEvery) == nil; {
			if n := got.Load(); n != last {
				last = n
				r.say("image %s: %s of %s", r.text, size(n), size(total))
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// ensureLayers makes every layer of f be here, and holds what it got. The caller gives that free, after an error too.
func (s *Store) ensureLayers(ctx context.Context, r request, f *found, got func(int64)) (held []string, err error) {
	var mu sync.Mutex
	whole := s.newBudget() // of the image; nothing is taken with it
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelPulls)
	for i, l := range f.layers {
		g.Go(func() error {
			began := s.cfg.Clock.Now()
			for range 3 {
				if meta, ok := s.holdLayer(l.diff); ok {
					mu.Lock()
					defer mu.Unlock()
					held = append(held, l.diff)
					return whole.count(meta.Entries, meta.Bytes)
				}
				err := s.flights.do(ctx, "layer "+l.diff, nil, func(ctx context.Context, _ func(string)) error {
					return s.layer(ctx, r, f, l, got)
				})
				if err != nil {
					return err
				}
				r.say("layer %d of %d (%s) is here after %s", i+1, len(f.layers), size(l.size), s.cfg.Clock.Now().Sub(began).Round(time.Millisecond))
			}
			return fmt.Errorf("%w: layer %s was removed as soon as it was unpacked", ErrFull, l.diff)
		})
	}
	err = g.Wait()
	return held, err
}

// layer pulls one layer and unpacks it.
func (s *Store) layer(ctx context.Context, r request, f *found, l layer, got func(int64)) error {
	if s.hasLayer(l.diff) {
		return nil
	}
	b := s.newBudget()
	defer b.giveBack()
	for try := 0; ; try++ {
		if err := s.fetch(ctx, r, f.repo.Digest(l.blob), f, l, got); err != nil {
			return err
		}
		in, err := s.cfg.Blobs.Open(ctx, l.blob)
		if err == nil {
			err = s.unpackLayer(ctx, l, b, in)
			_ = in.Close() // what was read has been checked against the layer's digest
		}
		if err == nil || try > 0 || s.cfg.Blobs.Has(ctx, l.blob) {
			return err
		}
		// The bytes were damaged on the disk, and are gone now, or somebody needed the room: once more from the registry.
	}
}

// fetch puts a layer's bytes into Blobs, unless they are there.
func (s *Store) fetch(ctx context.Context, r request, at name.Reference, f *found, l layer, got func(int64)) error {
	if s.cfg.Blobs.Has(ctx, l.blob) {
		got(l.size)
		return nil
	}
	if err := slot(ctx, s.pulls); err != nil {
		return err
	}
	defer func() { <-s.pulls }()
	return s.again(ctx, r, at, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		remote, err := f.puller.Layer(ctx, f.repo.Digest(l.blob))
		if err != nil {
			return err
		}
		body, err := remote.Compressed()
		if err != nil {
			return err
		}
		defer body.Close()
		src := &source{r: body, got: got, left: l.size, stall: time.AfterFunc(stallTime, func() { cancel(errStalled) })}
		defer src.stall.Stop()
		err = s.cfg.Blobs.Put(ctx, l.blob, l.size, src)
		if err != nil {
			got(-src.n)
		}
		if src.err == nil || src.left <= 0 || strings.Contains(src.err.Error(), "error verifying") { // the library has no error to test for
			if src.err != nil {
				return damaged("a layer is not what its digest says", src.err)
			}
			return err
		}
		return fmt.Errorf("read layer %s: %w", l.blob, errors.Join(src.err, context.Cause(ctx)))
	})
}

// source is a layer's body on its way: it remembers how reading failed, which tells the registry's faults from ours.
type source struct {
	r     io.Reader
	got   func(int64)
	stall *time.Timer
	n     int64
	left  int64
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.stall.Reset(stallTime)
		s.n, s.left = s.n+int64(n), s.left-int64(n)
		s.got(int64(n))
	}
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = err
	}
	return n, err
}

// ours says that err is not the registry's fault, so that asking again is no use.
func ours(err error) bool {
	for _, e := range []error{ErrDamaged, ErrFull, ErrTooLarge, ErrUnsafe, ErrPlatform, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// slot waits for a place in sem.
func slot(ctx context.Context, sem chan struct{}) error {
	select {
	case sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// size shows bytes to people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
}

// readAll reads at most most bytes.
func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%w: a description of more than %d bytes", ErrTooLarge, most)
	}
	return b, err
}
