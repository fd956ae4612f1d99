package feed

import (
	"context"
	"fmt"
	"slices"

	"spindle/pipeline"
)

// Changes is where numbered changes come from: the store.
type Changes interface {
	// Changes returns up to limit changes with numbers above after, in order.
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	// LastChange is the highest number given so far.
	LastChange(ctx context.Context) (int64, error)
	// Changed returns a channel that is closed at the next change; from then on it returns another one.
	Changed() <-chan struct{}
}

// Feed reads changes. Make it with New; it is safe for concurrent use.
type Feed struct {
	src   Changes
	batch int
	// turn holds one token; whoever has it may use tail.
	turn chan struct{}
	tail tail
}

// New returns a feed over src that hands out at most batch changes at a time; batch below 1 means 500.
func New(src Changes, batch int) *Feed {
	if batch < 1 {
		batch = 500
	}
	return &Feed{src: src, batch: batch, turn: make(chan struct{}, 1)}
}

// Last is the number of the newest change.
func (f *Feed) Last(ctx context.Context) (int64, error) { return f.src.LastChange(ctx) }

// Next returns the changes after the given number, waiting for one if there is none yet. It returns an
// error only when ctx ends or the store cannot be read.
func (f *Feed) Next(ctx context.Context, after int64) ([]pipeline.Change, error) {
	for {
		wake := f.src.Changed()
		cs, err := f.look(ctx, after, f.batch, wake)
		if err != nil {
			return nil, fmt.Errorf("read changes after %d: %w", after, err)
		}
		if len(cs) > 0 {
			return cs, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wake:
		}
	}
}

// Changes returns at most limit changes after the given number, and waits for none. Who wants to wait takes Changed
// before.
func (f *Feed) Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error) {
	if limit < 1 {
		return nil, nil
	}
	return f.look(ctx, after, limit, f.src.Changed())
}

// Changed returns a channel that is closed at the next change.
func (f *Feed) Changed() <-chan struct{} { return f.src.Changed() }

// look returns what there is after the given number. wake was taken before.
func (f *Feed) look(ctx context.Context, after int64, limit int, wake <-chan struct{}) ([]pipeline.Change, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cs, err := f.fromTail(ctx, after, limit, wake)
	old := after < f.tail.from
	<-f.turn
	if err != nil || !old {
		return cs, err
	}
	// A reader that is far behind catches up by itself and holds up nobody.
	return f.src.Changes(ctx, after, limit)
}

// fromTail brings the tail up to date, unless it is, and answers from it. The caller has the turn.
func (f *Feed) fromTail(ctx context.Context, after int64, limit int, wake <-chan struct{}) ([]pipeline.Change, error) {
	// A look under this very wake-up has been done for another reader: if there were anything newer, the
	// wake-up would have gone off and this reader would look again.
	if f.tail.wake == nil || f.tail.wake != wake {
		if err := f.tail.extend(ctx, f.src); err != nil {
			return nil, err
		}
		f.tail.wake = wake
	}
	return f.tail.after(after, limit), nil
}

// keep is how many changes the tail holds at least, and at most twice.
const keep = 1024

// tail is the newest changes: all those with numbers above from up to end.
type tail struct {
	from, end int64
	list      []pipeline.Change
	// wake is the wake-up that was taken before the last look; nil before the first.
	wake <-chan struct{}
}

// extend reads what is newer than the tail. Where that is more than it holds, it begins anew at the newest.
func (t *tail) extend(ctx context.Context, src Changes) error {
	for began := t.wake != nil; ; began = false {
		if !began {
			last, err := src.LastChange(ctx)
			if err != nil {
				return err
			}
			t.from, t.end, t.list = last, last, nil
		}
		cs, err := src.Changes(ctx, t.end, keep)
		if err != nil {
			return err
		}
		if len(cs) == keep {
			continue
		}
		if len(cs) == 0 {
			return nil
		}
		t.list = append(t.list, cs...)
		t.end = cs[len(cs)-1].Number
		if n := len(t.list) - keep; n > keep {
			t.from = t.list[n-1].Number
			t.list = slices.Clone(t.list[n:])
		}
		return nil
	}
}

// after returns at most limit changes above the given number; none if that lies before the tail.
func (t *tail) after(number int64, limit int) []pipeline.Change {
	if number < t.from {
		return nil
	}
	i, _ := slices.BinarySearchFunc(t.list, number, func(c pipeline.Change, n int64) int {
		if c.Number <= n {
			return -1
		}
		return 1
	})
	return slices.Clone(t.list[i:min(len(t.list), i+limit)])
}
