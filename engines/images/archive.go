package images

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// An archive may unpack to at most maxRatio times its size, once it is beyond freeBytes: real layers stay below 20,
// gzip reaches a thousand with zeros.
const (
	maxRatio  = 200
	freeBytes = 256 << 20
)

// maxWindow bounds the memory that a zstd frame may ask for (RFC 8878, 3.1.1.1.2 recommends to support 8 MiB).
const maxWindow = 128 << 20

// archive is a layer's uncompressed stream, with its digest and its bounds.
type archive struct {
	ctx   context.Context //nolint:containedctx // the reads of one unpacking
	in    *counter
	plain io.Reader
	end   func()
	sum   hash.Hash
	out   int64
	most  int64
	free  int64 // up to where no ratio is asked for
}

// counter counts compressed bytes.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// newArchive finds out how r is compressed. most bounds the uncompressed stream. Close it.
func newArchive(ctx context.Context, r io.Reader, most int64) (*archive, error) {
	a := &archive{ctx: ctx, in: &counter{r: r}, sum: sha256.New(), most: most, free: freeBytes, end: func() {}}
	peek := bufio.NewReaderSize(a.in, 64<<10)
	magic, err := peek.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("images: read a layer: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(peek)
		if err != nil {
			return nil, damaged("a layer is not compressed as it says", err)
		}
		a.plain = z
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(peek, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow))
		if err != nil {
			return nil, damaged("a layer is not compressed as it says", err)
		}
		a.plain, a.end = z, z.Close
	default:
		a.plain = peek
	}
	return a, nil
}

// Read implements io.Reader.
func (a *archive) Read(p []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := a.plain.Read(p)
	a.sum.Write(p[:n])
	a.out += int64(n)
	switch {
	case a.out > a.most:
		return 0, fmt.Errorf("%w: a layer unpacks to more than %s", ErrTooLarge, size(a.most))
	case a.out > a.free && a.out/maxRatio > a.in.n:
		return 0, fmt.Errorf("%w: a layer unpacks to more than %d times its size", ErrUnsafe, maxRatio)
	case err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	case ours(err) || a.ctx.Err() != nil:
		return n, err
	}
	return n, damaged("a layer cannot be uncompressed", err)
}

// finish reads what follows the archive's end, and says whether all was what diff names.
func (a *archive) finish(diff string) error {
	if _, err := io.Copy(io.Discard, a); err != nil {
		return err
	}
	if got := fmt.Sprintf("sha256:%x", a.sum.Sum(nil)); got != diff {
		return damaged(fmt.Sprintf("a layer unpacks to %s and should to %s", got, diff), nil)
	}
	return nil
}
