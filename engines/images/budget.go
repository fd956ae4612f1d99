package images

import (
	"fmt"
	"sync"
)

// budget is what one layer, or one image, may still take. What it takes is taken from the store at once, which makes room by removing
// images that were not used for long.
type budget struct {
	s *Store

	mu      sync.Mutex
	bytes   int64 // left
	entries int64 // left
	taken   int64 // from the store, and not yet handed over to a layer or root
}

// diskBlock is what a file takes at least, and by which its size is rounded up: many small files are not free.
const diskBlock = 4 << 10

// cost is what a file of n bytes is charged.
func cost(n int64) int64 { return (n + diskBlock - 1) / diskBlock * diskBlock }

func (s *Store) newBudget() *budget {
	return &budget{s: s, bytes: s.cfg.MaxImage, entries: s.cfg.MaxEntries}
}

// take charges entries and n bytes. The errors are ErrTooLarge and ErrFull.
func (b *budget) take(entries, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.count(entries, n); err != nil {
		return err
	}
	if err := b.s.reserve(n); err != nil {
		return err
	}
	b.taken += n
	return nil
}

// count is take without taking from the store. The caller has the lock, or is alone.
func (b *budget) count(entries, n int64) error {
	if b.entries -= entries; b.entries < 0 {
		return fmt.Errorf("%w: it has more than %d files", ErrTooLarge, b.s.cfg.MaxEntries)
	}
	if n > b.bytes {
		return fmt.Errorf("%w: unpacked it has more than %s", ErrTooLarge, size(b.s.cfg.MaxImage))
	}
	b.bytes -= n
	return nil
}

// handOver makes n of the bytes taken belong to something that is stored.
func (b *budget) handOver(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
}

// giveBack returns what did not become anything.
func (b *budget) giveBack() { b.refund(-1) }

// refund returns n bytes that were taken, or all of them.
func (b *budget) refund(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 {
		n = b.taken
	}
	b.taken -= n
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.used -= n
}
