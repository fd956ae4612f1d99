package identity

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"
	"github.com/multiformats/go-multihash"
)

const (
	maxCAR       = 1 << 20 // bytes of one record proof
	maxCARHeader = 1 << 10
	maxCARBlocks = 2048
)

// proofCAR is a CAR file whose blocks match their names.
type proofCAR struct {
	commit *repo.Commit
	blocks map[cid.Cid][]byte
}

// block is the block that c names; nil when there is none.
func (p *proofCAR) block(c cid.Cid) ([]byte, error) { return p.blocks[c], nil }

// readCAR decodes a proof as com.atproto.sync.getRecord sends it. The CAR's root is the commit. The hash
// of each block is checked against its CID, and only the form of CIDs that repos use is accepted
// (CIDv1, dag-cbor, SHA-256), so that no weaker hash gets in. Errors are ErrProof.
func readCAR(ctx context.Context, b []byte) (*proofCAR, error) {
	if err := measureCAR(b); err != nil {
		return nil, err
	}
	r, err := car.NewCarReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: CAR: %w", ErrProof, err)
	}
	p := &proofCAR{blocks: map[cid.Cid][]byte{}}
	for {
		blk, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: CAR block: %w", ErrProof, err)
		}
		if !repoCID(blk.Cid()) {
			return nil, fmt.Errorf("%w: block of foreign kind", ErrProof)
		}
		p.blocks[blk.Cid()] = blk.RawData()
	}
	commit, _, err := repo.LoadCommitFromCAR(ctx, bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: commit: %w", ErrProof, err)
	}
	if !repoCID(commit.Data) {
		return nil, fmt.Errorf("%w: tree root of foreign kind", ErrProof)
	}
	p.commit = commit
	return p, nil
}

// measureCAR checks the lengths of all sections before the reader allocates by them: the reader believes a
// length of up to 32 MiB whatever follows.
func measureCAR(b []byte) error {
	if len(b) > maxCAR {
		return fmt.Errorf("%w: CAR of %d bytes", ErrProof, len(b))
	}
	for n := 0; len(b) > 0; n++ {
		l, w := binary.Uvarint(b)
		switch {
		case w <= 0 || l == 0 || l > uint64(len(b)-w):
			return fmt.Errorf("%w: CAR is cut off or malformed", ErrProof)
		case n == 0 && l > maxCARHeader:
			return fmt.Errorf("%w: CAR header of %d bytes", ErrProof, l)
		case n > maxCARBlocks:
			return fmt.Errorf("%w: CAR with more than %d blocks", ErrProof, maxCARBlocks)
		}
		b = b[w+int(l):]
	}
	return nil
}

func repoCID(c cid.Cid) bool {
	if !c.Defined() {
		return false
	}
	p := c.Prefix()
	return p.Version == 1 && p.Codec == cid.DagCBOR && p.MhType == multihash.SHA2_256 && p.MhLength == 32
}
