package feed

import (
	"context"
	"fmt"

	"spindle/pipeline"
)

// Changes is where numbered changes come from: the store.
type Changes interface {
	// Changes returns up to limit changes with numbers above after, in order.
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	// LastChange is the highest number given so far.
	LastChange(ctx context.Context) (int64, error)
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Feed reads changes. Make it with New; it is safe for concurrent use.
type Feed struct {
	src   Changes
	batch int
}

// New returns a feed over src that hands out at most batch changes at a time; batch below 1 means 500.
func New(src Changes, batch int) *Feed {
	if batch < 1 {
		batch = 500
	}
	return &Feed{src: src, batch: batch}
}

// Last is the number of the newest change.
func (f *Feed) Last(ctx context.Context) (int64, error) { return f.src.LastChange(ctx) }

// Next returns the changes after the given number, waiting for one if there is none yet. It returns an
// error only when ctx ends or the store cannot be read.
func (f *Feed) Next(ctx context.Context, after int64) ([]pipeline.Change, error) {
	for {
		wake := f.src.Changed()
		cs, err := f.src.Changes(ctx, after, f.batch)
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
