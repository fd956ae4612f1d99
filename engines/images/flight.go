package images

import (
	"context"
	"errors"
	"sync"
)

// flights do a piece of work once for everybody who waits for it at the time. The work goes on while anybody waits,
// and is stopped when the last one leaves.
type flights struct {
	base context.Context //nolint:containedctx // the life of the store, which owns the goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu sync.Mutex
	m  map[string]*flight
}

type flight struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done

	mu      sync.Mutex
	waiting int
	hear    map[int]func(string) // by waiter
	next    int
}

var errClosed = errors.New("images: the store is closed")

func newFlights() *flights {
	ctx, cancel := context.WithCancel(context.Background())
	return &flights{base: ctx, stop: cancel, m: map[string]*flight{}}
}

// close ends all work and waits for it.
func (g *flights) close() {
	g.mu.Lock()
	g.stop()
	g.mu.Unlock()
	g.wg.Wait()
}

// do waits for the work called key, and starts it if nobody has. hear gets what the work says until do returns.
func (g *flights) do(ctx context.Context, key string, hear func(string), work func(ctx context.Context, say func(string)) error) error {
	for {
		f, me, err := g.join(key, hear, work)
		if err != nil {
			return err
		}
		select {
		case <-f.done:
			f.leave(me)
			if errors.Is(f.err, context.Canceled) && ctx.Err() == nil && g.base.Err() == nil {
				continue // it was stopped because others left just before we came
			}
			return f.err
		case <-ctx.Done():
			f.leave(me)
			return ctx.Err()
		}
	}
}

func (g *flights) join(key string, hear func(string), work func(ctx context.Context, say func(string)) error) (*flight, int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base.Err() != nil {
		return nil, 0, errClosed
	}
	f, ok := g.m[key]
	if !ok {
		ctx, cancel := context.WithCancel(g.base)
		f = &flight{cancel: cancel, done: make(chan struct{}), hear: map[int]func(string){}}
		g.m[key] = f
		g.wg.Go(func() {
			defer cancel()
			f.err = work(ctx, f.say)
			g.mu.Lock()
			delete(g.m, key)
			g.mu.Unlock()
			close(f.done)
		})
	}
	return f, f.enter(hear), nil
}

func (f *flight) enter(hear func(string)) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting++
	f.next++
	if hear != nil {
		f.hear[f.next] = hear
	}
	return f.next
}

func (f *flight) leave(me int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.hear, me)
	if f.waiting--; f.waiting == 0 {
		f.cancel()
	}
}

func (f *flight) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hear {
		h(line)
	}
}
