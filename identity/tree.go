package identity

import (
	"bytes"
	"fmt"

	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/ipfs/go-cid"
)

// blockFunc reads a block by its CID, whose hash it has been checked against; nil is a block that is not there.
type blockFunc func(cid.Cid) ([]byte, error)

// findInTree walks from the root of a repo's Merkle search tree to key
// (https://atproto.com/specs/repository, "MST Structure"). It returns the record's CID, or ErrAbsent if the
// blocks prove that the tree has no such key, or ErrProof.
//
// indigo's own loader follows every link in the blocks, which a hostile proof can make exponential, and
// believes lengths that can make it panic. A proof of one key needs one path only, so this walks down: one
// node a level, each with its keys' order, bounds and heights checked.
func findInTree(block blockFunc, root cid.Cid, key []byte) (cid.Cid, error) {
	if !mst.IsValidKey(key) {
		return cid.Undef, fmt.Errorf("%w: key of %d bytes", ErrProof, len(key))
	}
	want := mst.HeightForKey(key)
	at, height, isRoot := root, -1, true
	var low, high []byte // every key below lies strictly between; nil is open
	for {
		n, err := loadNode(block, at, height, isRoot)
		if err != nil {
			return cid.Undef, err
		}
		if err := n.within(low, high); err != nil {
			return cid.Undef, err
		}
		switch {
		case n.empty(), n.height < want:
			return cid.Undef, ErrAbsent
		case n.height == want:
			for i, k := range n.keys {
				if bytes.Equal(k, key) {
					return n.values[i], nil
				}
			}
			return cid.Undef, ErrAbsent
		}
		next, l, h := n.below(key, low, high)
		if next == nil {
			return cid.Undef, ErrAbsent
		}
		at, height, isRoot, low, high = *next, n.height-1, false, l, h
	}
}

// node is a decoded tree node: keys in order, values[i] for keys[i], and links[i] to the subtree left of
// keys[i], with one more at the end.
type node struct {
	height int
	keys   [][]byte
	values []cid.Cid
	links  []*cid.Cid
}

func loadNode(block blockFunc, at cid.Cid, height int, isRoot bool) (*node, error) {
	raw, err := block(at)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("%w: tree node is missing", ErrProof)
	}
	d, err := mst.NodeDataFromCBOR(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: tree node: %w", ErrProof, err)
	}
	// One tree has one encoding; anything else in the block would be hidden content.
	if again, _, err := d.Bytes(); err != nil || !bytes.Equal(again, raw) {
		return nil, fmt.Errorf("%w: tree node is not in canonical form", ErrProof)
	}
	n := &node{height: height, links: []*cid.Cid{d.Left}}
	var prev []byte
	for _, e := range d.Entries {
		if e.PrefixLen < 0 || e.PrefixLen > int64(len(prev)) || len(e.KeySuffix) > mst.MAX_KEY_BYTES {
			return nil, fmt.Errorf("%w: tree key", ErrProof)
		}
		key := append(bytes.Clone(prev[:e.PrefixLen]), e.KeySuffix...)
		if !mst.IsValidKey(key) || bytes.Compare(prev, key) >= 0 || mst.CountPrefixLen(prev, key) != int(e.PrefixLen) {
			return nil, fmt.Errorf("%w: tree keys out of order", ErrProof)
		}
		h := mst.HeightForKey(key)
		if n.height < 0 {
			n.height = h // the root's level is that of its keys
		}
		if h != n.height {
			return nil, fmt.Errorf("%w: tree key on the wrong level", ErrProof)
		}
		n.keys, n.values, n.links = append(n.keys, key), append(n.values, e.Value), append(n.links, e.Right)
		prev = key
	}
	switch {
	case len(n.keys) == 0 && isRoot != (d.Left == nil):
		return nil, fmt.Errorf("%w: tree node without keys", ErrProof) // only an empty tree has no keys at its root
	case n.height == 0 && n.linked():
		return nil, fmt.Errorf("%w: tree goes below level 0", ErrProof)
	}
	return n, nil
}

func (n *node) empty() bool { return len(n.keys) == 0 && n.links[0] == nil }

func (n *node) linked() bool {
	for _, l := range n.links {
		if l != nil {
			return true
		}
	}
	return false
}

func (n *node) within(low, high []byte) error {
	if len(n.keys) == 0 {
		return nil
	}
	first, last := n.keys[0], n.keys[len(n.keys)-1]
	if low != nil && bytes.Compare(first, low) <= 0 || high != nil && bytes.Compare(last, high) >= 0 {
		return fmt.Errorf("%w: tree keys outside their place", ErrProof)
	}
	return nil
}

// below is the link to follow for key, and the bounds of what lies there.
func (n *node) below(key, low, high []byte) (link *cid.Cid, l, h []byte) {
	for i, k := range n.keys {
		if bytes.Compare(key, k) < 0 {
			return n.links[i], low, k
		}
		low = k
	}
	return n.links[len(n.links)-1], low, high
}
