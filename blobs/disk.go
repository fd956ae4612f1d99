package blobs

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"spindle/internal/clock"
)

// Config sets a Disk up.
type Config struct {
	// Dir is the store's own folder, created with mode 0700. Required, absolute.
	Dir string
	// MaxBytes bounds all blobs and those being written. Zero means 5 GiB; negative is refused.
	MaxBytes int64
	// Clock says when a blob was used last. nil means the machine's clock.
	Clock clock.Clock
	// Log is told what goes. nil discards it.
	Log *slog.Logger
}

const defaultMaxBytes = 5 << 30

// touchEvery is how stale the time of last use on the disk may be. It only orders blobs after a restart.
const touchEvery = time.Minute

// Disk is a store of blobs in a folder. It is safe for concurrent use and holds nothing to close.
type Disk struct {
	cfg Config

	mu      sync.Mutex
	blobs   map[Digest]*list.Element
	order   *list.List // of *blob, least recently used first
	stored  int64      // bytes of blobs
	pending int64      // bytes reserved for those being written
}

// blob is what is known of a stored blob. Guarded by Disk.mu.
type blob struct {
	digest  Digest
	size    int64
	touched time.Time // as the disk has it
	holds   int
}

// New opens the store in cfg.Dir and removes what writers that were killed have left.
func New(cfg Config) (*Disk, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(cfg.Dir) || cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("blobs: the folder %q must be absolute and the bound %d positive", cfg.Dir, cfg.MaxBytes)
	}
	d := &Disk{cfg: cfg, blobs: map[Digest]*list.Element{}, order: list.New()}
	if err := os.RemoveAll(d.tmp()); err != nil {
		return nil, fmt.Errorf("blobs: remove unfinished writes: %w", err)
	}
	for _, dir := range []string{d.tmp(), filepath.Join(cfg.Dir, "sha256")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("blobs: create the folder: %w", err)
		}
	}
	if err := d.load(); err != nil {
		return nil, fmt.Errorf("blobs: list what is stored: %w", err)
	}
	return d, nil
}

// load reads the index from the folder, and brings it within its bound, which may have become smaller.
func (d *Disk) load() error {
	var found []*blob
	err := filepath.WalkDir(filepath.Join(d.cfg.Dir, "sha256"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		dg, err := ParseDigest(algorithm + e.Name())
		if err != nil || path != d.path(dg) {
			return nil // not ours
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		found = append(found, &blob{digest: dg, size: st.Size(), touched: st.ModTime()})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b *blob) int { return a.touched.Compare(b.touched) })
	for _, b := range found {
		d.blobs[b.digest] = d.order.PushBack(b)
		d.stored += b.size
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.makeRoom(0) // a single blob larger than a bound that became smaller has gone by now
	return nil
}

func (d *Disk) tmp() string { return filepath.Join(d.cfg.Dir, "tmp") }

func (d *Disk) path(dg Digest) string {
	h := dg.hex()
	return filepath.Join(d.cfg.Dir, "sha256", h[:2], h)
}

// Used is how many bytes are stored and being written.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored + d.pending
}

// Stat is the size of a blob, or ErrNotFound.
func (d *Disk) Stat(_ context.Context, dg Digest) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.blobs[dg]
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrNotFound, dg)
	}
	return e.Value.(*blob).size, nil
}

// Hold keeps a blob from being removed until release is called, which may be called more than once.
func (d *Disk) Hold(dg Digest) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := d.use(dg)
	if err != nil {
		return nil, err
	}
	return d.hold(b), nil
}

// hold counts one more holder. The caller has the lock.
func (d *Disk) hold(b *blob) (release func()) {
	b.holds++
	var once sync.Once
	return func() {
		once.Do(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			b.holds--
		})
	}
}

// use makes a blob the most recently used. The caller has the lock.
func (d *Disk) use(dg Digest) (*blob, error) {
	e, ok := d.blobs[dg]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, dg)
	}
	d.order.MoveToBack(e)
	b := e.Value.(*blob)
	if now := d.cfg.Clock.Now(); now.Sub(b.touched) > touchEvery {
		b.touched = now
		_ = os.Chtimes(d.path(dg), now, now) // only the order after a restart depends on it
	}
	return b, nil
}

// Remove deletes a blob that nobody holds. One that is not there is no error.
func (d *Disk) Remove(_ context.Context, dg Digest) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.blobs[dg]
	if !ok {
		return nil
	}
	if e.Value.(*blob).holds > 0 {
		return fmt.Errorf("%w: %s", ErrInUse, dg)
	}
	return d.drop(e)
}

// Collect removes least recently used blobs that nobody holds until at most keep bytes are stored, and says how many
// bytes went.
func (d *Disk) Collect(_ context.Context, keep int64) (freed int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.stored
	err = d.shrink(keep)
	return before - d.stored, err
}

// makeRoom removes blobs until n more bytes may be written. The caller has the lock.
func (d *Disk) makeRoom(n int64) error {
	if err := d.shrink(d.cfg.MaxBytes - d.pending - n); err != nil {
		return err
	}
	if d.stored+d.pending+n > d.cfg.MaxBytes {
		return fmt.Errorf("%w: %d of %d bytes", ErrFull, d.stored+d.pending, d.cfg.MaxBytes)
	}
	return nil
}

func (d *Disk) shrink(keep int64) error {
	for e := d.order.Front(); e != nil && d.stored > keep; {
		next := e.Next()
		if e.Value.(*blob).holds == 0 {
			if err := d.drop(e); err != nil {
				return err
			}
		}
		e = next
	}
	return nil
}

// drop removes the file and then what is known of it. The caller has the lock.
func (d *Disk) drop(e *list.Element) error {
	b := e.Value.(*blob)
	if err := os.Remove(d.path(b.digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("blobs: remove %s: %w", b.digest, err)
	}
	d.forget(e)
	d.cfg.Log.Debug("blob removed", "digest", b.digest, "bytes", b.size)
	return nil
}

// forget takes a blob out of the index. The caller has the lock.
func (d *Disk) forget(e *list.Element) {
	b := d.order.Remove(e).(*blob)
	delete(d.blobs, b.digest)
	d.stored -= b.size
}

// full makes the system's words for a full disk or quota an ErrNoSpace.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
