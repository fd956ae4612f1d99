package blobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Want is what a writer promises of the content, and what is held against it.
type Want struct {
	// Digest is what the content must have; empty takes it as it comes.
	Digest Digest
	// Size is how many bytes the content must have; negative is not known.
	Size int64
	// Limit is how many bytes are taken at most. Zero means no limit but the store's own bound.
	Limit int64
}

// chunk is how much room is reserved and copied at a time.
const chunk = 256 << 10

// Put stores what r gives until its end, and returns its digest and size. When it returns nil the blob is whole and
// on the disk. A blob that is there already is not written again, but r is read and checked all the same. The errors
// are ErrMismatch, ErrTooLarge, ErrFull, ErrNoSpace, those of r and of ctx, which are wrapped.
func (d *Disk) Put(ctx context.Context, r io.Reader, w Want) (Digest, int64, error) {
	if w.Digest != "" {
		if _, err := ParseDigest(string(w.Digest)); err != nil {
			return "", 0, err
		}
	}
	f, err := os.CreateTemp(d.tmp(), "put-")
	if err != nil {
		return "", 0, fmt.Errorf("blobs: begin to write: %w", full(err))
	}
	p := &put{d: d, f: f, want: w}
	defer p.close()
	dg, err := p.fill(ctx, r)
	if err != nil {
		return "", 0, err
	}
	if err := p.keep(dg); err != nil {
		return "", 0, err
	}
	return dg, p.size, nil
}

// put is one blob being written.
type put struct {
	d        *Disk
	f        *os.File
	want     Want
	size     int64
	reserved int64
	kept     bool
}

// close gives the reservation back, and removes the file where it was not kept.
func (p *put) close() {
	_ = p.f.Close() // an unkept file's bytes do not matter, a kept one's are synced
	if !p.kept {
		_ = os.Remove(p.f.Name()) // New removes what could not be removed now
	}
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.d.pending -= p.reserved
}

// fill copies r to the file and checks what came.
func (p *put) fill(ctx context.Context, r io.Reader) (Digest, error) {
	sum := sha256.New()
	buf := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("blobs: write: %w", err)
		}
		n, err := r.Read(buf)
		if werr := p.write(buf[:n]); werr != nil {
			return "", werr
		}
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("blobs: read what to write: %w", err)
		}
	}
	dg := digestOf(sum.Sum(nil))
	if p.want.Size >= 0 && p.want.Size != p.size && p.want.Digest != "" {
		return "", fmt.Errorf("%w: %d bytes came, %d were announced", ErrMismatch, p.size, p.want.Size)
	}
	if p.want.Digest != "" && dg != p.want.Digest {
		return "", fmt.Errorf("%w: it is %s and should be %s", ErrMismatch, dg, p.want.Digest)
	}
	return dg, nil
}

// write makes room and writes b.
func (p *put) write(b []byte) error {
	n := int64(len(b))
	if p.want.Limit > 0 && p.size+n > p.want.Limit || p.want.Size >= 0 && p.want.Digest != "" && p.size+n > p.want.Size {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, max(p.size, p.want.Limit))
	}
	p.d.mu.Lock()
	err := p.d.makeRoom(n)
	if err == nil {
		p.d.pending += n
		p.reserved += n
	}
	p.d.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := p.f.Write(b); err != nil {
		return fmt.Errorf("blobs: write: %w", full(err))
	}
	p.size += n
	return nil
}

// keep makes the file the blob: synced first, so that a name never stands for bytes that a power cut took.
func (p *put) keep(dg Digest) error {
	p.d.mu.Lock()
	_, err := p.d.use(dg)
	p.d.mu.Unlock()
	if err == nil {
		return nil
	}
	if err := p.f.Chmod(0o400); err != nil {
		return fmt.Errorf("blobs: finish %s: %w", dg, err)
	}
	if err := p.f.Sync(); err != nil {
		return fmt.Errorf("blobs: finish %s: %w", dg, full(err))
	}
	at := p.d.path(dg)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return fmt.Errorf("blobs: finish %s: %w", dg, full(err))
	}
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if _, err := p.d.use(dg); err == nil {
		return nil // somebody else was faster
	}
	if err := os.Rename(p.f.Name(), at); err != nil {
		return fmt.Errorf("blobs: finish %s: %w", dg, full(err))
	}
	p.kept = true
	if err := syncDir(filepath.Dir(at)); err != nil {
		_ = os.Remove(at) // the caller is told that there is no blob
		return fmt.Errorf("blobs: finish %s: %w", dg, err)
	}
	p.d.blobs[dg] = p.d.order.PushBack(&blob{digest: dg, size: p.size, touched: p.d.cfg.Clock.Now()})
	p.d.stored += p.size
	p.d.pending -= p.reserved
	p.reserved = 0
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
