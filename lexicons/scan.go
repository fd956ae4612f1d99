package lexicons

import (
	"bytes"
	"fmt"
	"io"

	"github.com/bluesky-social/indigo/atproto/atdata"
	cbg "github.com/whyrusleeping/cbor-gen"
)

// The major types of CBOR (RFC 8949, section 3.1) that scan treats apart.
const (
	majBytes = 2
	majText  = 3
	majArray = 4
	majMap   = 5
	majTag   = 6
)

// scan walks the items of raw without building anything: size, depth, lengths that fit into what is there,
// and one item in all. The decoders behind it recurse and allocate as the input says, so they may only
// see input that passed.
func scan(raw []byte) error {
	if len(raw) > atdata.MAX_CBOR_RECORD_SIZE {
		return fmt.Errorf("%w: %d bytes", ErrTooBig, len(raw))
	}
	r := bytes.NewReader(raw)
	cr := cbg.NewCborReader(r)
	open := make([]uint64, 1, atdata.MAX_CBOR_NESTED_LEVELS+1) // items still to come, per open container
	open[0] = 1
	for len(open) > 0 {
		last := len(open) - 1
		if open[last] == 0 {
			open = open[:last]
			continue
		}
		open[last]--
		maj, n, err := cr.ReadHeader()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if len(open) == 1 && maj != majMap {
			return fmt.Errorf("%w: not an object", ErrMalformed)
		}
		left := uint64(r.Len())
		switch maj {
		case majBytes, majText:
			if n > left {
				return fmt.Errorf("%w: a string of %d bytes where %d are left", ErrMalformed, n, left)
			}
			if _, err := r.Seek(int64(n), io.SeekCurrent); err != nil {
				return fmt.Errorf("%w: %w", ErrMalformed, err)
			}
		case majArray, majMap, majTag:
			items := n
			switch maj {
			case majMap:
				items = 2 * n
			case majTag:
				items = 1
			}
			if maj != majTag && (n > left || n > atdata.MAX_CBOR_CONTAINER_LEN) {
				return fmt.Errorf("%w: a container of %d items where %d bytes are left", ErrMalformed, n, left)
			}
			if len(open) > atdata.MAX_CBOR_NESTED_LEVELS {
				return ErrTooDeep
			}
			open = append(open, items)
		}
	}
	if r.Len() > 0 {
		return fmt.Errorf("%w: %d bytes after the end", ErrMalformed, r.Len())
	}
	return nil
}
