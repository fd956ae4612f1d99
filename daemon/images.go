package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"

	"spindle/blobs"
	"spindle/engines/images"
)

// ImageBytes lets a store of images keep the layers that it pulls as blobs. It implements images.Blobs.
type ImageBytes struct{ Disk *blobs.Disk }

// Has implements images.Blobs.
func (b ImageBytes) Has(ctx context.Context, digest string) bool {
	_, err := b.Disk.Stat(ctx, blobs.Digest(digest))
	return err == nil
}

// Put implements images.Blobs.
func (b ImageBytes) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	_, _, err := b.Disk.Put(ctx, r, blobs.Want{Digest: blobs.Digest(digest), Size: size})
	switch {
	case errors.Is(err, blobs.ErrMismatch), errors.Is(err, blobs.ErrTooLarge):
		return fmt.Errorf("%w: a layer is not what its digest says: %w", images.ErrDamaged, err)
	case errors.Is(err, blobs.ErrFull):
		return fmt.Errorf("%w: %w", images.ErrFull, err)
	}
	return err
}

// Open implements images.Blobs.
func (b ImageBytes) Open(ctx context.Context, digest string) (io.ReadCloser, error) {
	return b.Disk.Get(ctx, blobs.Digest(digest))
}
