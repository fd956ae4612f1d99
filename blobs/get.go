package blobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// Reader reads one blob from its beginning. It holds the blob until it is closed. At the end of the content it has
// checked the digest: a damaged blob ends with ErrMismatch where io.EOF would be, and is removed.
type Reader struct {
	d       *Disk
	digest  Digest
	f       *os.File
	sum     hash.Hash
	left    int64
	release func()
	bad     bool
}

// Get opens a blob, or fails with ErrNotFound.
func (d *Disk) Get(_ context.Context, dg Digest) (*Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := d.use(dg)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(dg))
	if errors.Is(err, fs.ErrNotExist) {
		d.forget(d.blobs[dg]) // somebody has removed the file by hand
		return nil, fmt.Errorf("%w: %s", ErrNotFound, dg)
	}
	if err != nil {
		return nil, fmt.Errorf("blobs: open %s: %w", dg, err)
	}
	return &Reader{d: d, digest: dg, f: f, sum: sha256.New(), left: b.size, release: d.hold(b)}, nil
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.bad {
		return 0, r.mismatch()
	}
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	r.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && (r.left != 0 || digestOf(r.sum.Sum(nil)) != r.digest), r.left < 0:
		r.bad = true
		return 0, r.mismatch()
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
		return n, fmt.Errorf("blobs: read %s: %w", r.digest, err)
	}
	return n, nil
}

func (r *Reader) mismatch() error {
	return fmt.Errorf("%w: %s is damaged on the disk", ErrMismatch, r.digest)
}

// Close gives the blob free. One that was found damaged is removed unless somebody else holds it.
func (r *Reader) Close() error {
	err := r.f.Close()
	r.release()
	if r.bad {
		r.d.cfg.Log.Error("a blob was damaged and is removed", "digest", r.digest)
		if rerr := r.d.Remove(context.Background(), r.digest); rerr != nil && !errors.Is(rerr, ErrInUse) {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return fmt.Errorf("blobs: close %s: %w", r.digest, err)
	}
	return nil
}
