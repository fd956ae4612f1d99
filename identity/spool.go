package identity

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"

	"spindle/internal/netguard"
)

// inMemory is how much of a repo's blocks is kept in memory; what is beyond goes to a file without a name.
const inMemory = 512 << 10

// spool holds the blocks of one CAR file so that each can be read by its hash. Memory is bounded: the blocks of a
// large file lie on disk, and the index takes 40 bytes a block.
type spool struct {
	buf   []byte
	file  *os.File // nil while everything fits into buf
	dir   string
	size  int64
	index []spooled // sorted by hash once all is in
}

type spooled struct {
	hash     [sha256.Size]byte
	off, len uint32
}

// readSpool reads a CAR file (https://ipld.io/specs/transport/car/carv1/) from r block by block, checks the hash of
// each, and returns the blocks with the CID of the root. Only the form of CIDs that repos use is accepted. The
// caller closes the spool. Errors are ErrProof, ErrTooBig, ErrUnreachable when r fails, or those of the disk.
func readSpool(r io.Reader, dir string, lim RepoLimits) (s *spool, root cid.Cid, err error) {
	s = &spool{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	in := bufio.NewReaderSize(&metered{r: r, left: lim.Bytes}, 64<<10)
	if root, err = carRoot(in); err != nil {
		return s, cid.Undef, err
	}
	var section []byte
	for {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, cid.Undef, cutOff(err)
		}
		if n == 0 || n > uint64(lim.Record)+maxCIDBytes {
			return s, cid.Undef, fmt.Errorf("%w: CAR block of %d bytes", ErrTooBig, n)
		}
		if len(s.index) == lim.Blocks {
			return s, cid.Undef, fmt.Errorf("%w: more than %d blocks", ErrTooBig, lim.Blocks)
		}
		section = slices.Grow(section[:0], int(n))[:n]
		if _, err := io.ReadFull(in, section); err != nil {
			return s, cid.Undef, cutOff(err)
		}
		if err := s.add(section); err != nil {
			return s, cid.Undef, err
		}
	}
	slices.SortFunc(s.index, func(a, b spooled) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	return s, root, nil
}

// maxCIDBytes is the length of the CIDs that repos use: version, codec, hash function, length, and the hash.
const maxCIDBytes = 4 + sha256.Size

// carRoot reads the header and returns the first root.
func carRoot(in *bufio.Reader) (cid.Cid, error) {
	head, err := in.Peek(binary.MaxVarintLen64)
	if err != nil && len(head) == 0 {
		return cid.Undef, cutOff(err)
	}
	// The reader of the header believes a length of up to 32 MiB, whatever follows.
	if n, w := binary.Uvarint(head); w <= 0 || n == 0 || n > maxCARHeader {
		return cid.Undef, fmt.Errorf("%w: CAR header", ErrProof)
	}
	h, err := car.ReadHeader(in)
	if err != nil {
		return cid.Undef, fmt.Errorf("%w: CAR header: %w", ErrProof, err)
	}
	if h.Version != 1 || len(h.Roots) == 0 || !repoCID(h.Roots[0]) {
		return cid.Undef, fmt.Errorf("%w: CAR header names no commit", ErrProof)
	}
	return h.Roots[0], nil
}

// cutOff names the end of a body that should go on.
func cutOff(err error) error {
	switch {
	case errors.Is(err, netguard.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooBig, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: CAR is cut off", ErrProof)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// add keeps one section: a CID and the block that it must be the hash of.
func (s *spool) add(section []byte) error {
	n, c, err := cid.CidFromBytes(section)
	if err != nil {
		return fmt.Errorf("%w: CID of a CAR block: %w", ErrProof, err)
	}
	if !repoCID(c) {
		return fmt.Errorf("%w: block of foreign kind", ErrProof)
	}
	data := section[n:]
	sum := sha256.Sum256(data)
	hash := c.Hash()
	if !bytes.Equal(sum[:], hash[len(hash)-sha256.Size:]) {
		return fmt.Errorf("%w: a block does not have the hash that names it", ErrProof)
	}
	if s.file == nil && len(s.buf)+len(data) > inMemory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if s.file != nil {
		if _, err := s.file.WriteAt(data, s.size); err != nil {
			return fmt.Errorf("keep a repo on disk: %w", err)
		}
	} else {
		s.buf = append(s.buf, data...)
	}
	s.index = append(s.index, spooled{hash: sum, off: uint32(s.size), len: uint32(len(data))})
	s.size += int64(len(data))
	return nil
}

// spill moves what was kept to a file that has no name any more, so that no crash leaves it behind.
func (s *spool) spill() error {
	f, err := os.CreateTemp(s.dir, "repo-")
	if err != nil {
		return fmt.Errorf("keep a repo on disk: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(fmt.Errorf("keep a repo on disk: %w", err), f.Close())
	}
	if _, err := f.WriteAt(s.buf, 0); err != nil {
		return errors.Join(fmt.Errorf("keep a repo on disk: %w", err), f.Close())
	}
	s.file, s.buf = f, nil
	return nil
}

// block is the block that c names; nil when the file has none.
func (s *spool) block(c cid.Cid) ([]byte, error) {
	if !repoCID(c) {
		return nil, nil
	}
	hash := c.Hash()
	hash = hash[len(hash)-sha256.Size:]
	i, ok := slices.BinarySearchFunc(s.index, []byte(hash), func(e spooled, h []byte) int { return bytes.Compare(e.hash[:], h) })
	if !ok {
		return nil, nil
	}
	e := s.index[i]
	if s.file == nil {
		return s.buf[e.off : e.off+e.len : e.off+e.len], nil
	}
	b := make([]byte, e.len)
	if _, err := s.file.ReadAt(b, int64(e.off)); err != nil {
		return nil, fmt.Errorf("read a repo from disk: %w", err)
	}
	return b, nil
}

// Close lets go of the file.
func (s *spool) Close() error {
	if s.file == nil {
		return nil
	}
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("close the file of a repo: %w", err)
	}
	return nil
}

// metered fails with netguard.ErrTooLarge once more than left bytes have come.
type metered struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.left -= int64(n)
	if m.left < 0 {
		return 0, netguard.ErrTooLarge
	}
	return n, err
}
