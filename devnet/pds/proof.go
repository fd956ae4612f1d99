package pds

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-car"
	carutil "github.com/ipld/go-car/util"
)

// block is one block of a CAR file.
type block struct {
	cid  cid.Cid
	data []byte
}

// Proof is the CAR file of com.atproto.sync.getRecord: the signed commit, the nodes of the tree on the
// path of the key, and the record. Of a record that does not exist it is the proof of that: the path to
// where it would be. Tamper has its effect here.
func (r *Repo) Proof(collection, rkey string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proof(collection, rkey)
}

// proof is Proof for a caller that holds the lock.
func (r *Repo) proof(collection, rkey string) ([]byte, error) {
	return r.car(func(s state) ([]block, error) {
		out, err := pathTo(s.tree.Root, []byte(collection+"/"+rkey))
		if err != nil {
			return nil, err
		}
		if rec, ok := s.records[collection+"/"+rkey]; ok {
			out = append(out, block{rec.CID, rec.Bytes})
		}
		return out, nil
	}, collection, rkey)
}

// Export is the CAR file of com.atproto.sync.getRepo: everything.
func (r *Repo) Export() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.car(func(s state) ([]block, error) {
		out, err := nodes(s.tree.Root, nil)
		if err != nil {
			return nil, err
		}
		for _, path := range slices.Sorted(maps.Keys(s.records)) {
			out = append(out, block{s.records[path].CID, s.records[path].Bytes})
		}
		return out, nil
	}, "", "")
}

// car writes the blocks that pick cuts from the state that is to be shown. The caller holds the lock.
func (r *Repo) car(pick func(state) ([]block, error), collection, rkey string) ([]byte, error) {
	if r.status != "" {
		return nil, fmt.Errorf("%w: %s is %s", ErrInactive, r.did, r.status)
	}
	s := state{head: r.head, tree: r.tree, records: r.records}
	if r.tamper == Rollback && r.frozen != nil {
		s = *r.frozen
	}
	s, err := r.bend(s, collection, rkey)
	if err != nil {
		return nil, err
	}
	blocks, err := pick(s)
	if err != nil {
		return nil, err
	}
	blocks = append([]block{{s.head.cid, s.head.bytes}}, blocks...)
	if r.tamper == CorruptBlock {
		last := &blocks[len(blocks)-1]
		last.data = slices.Clone(last.data)
		last.data[len(last.data)-1] ^= 1
	}
	var b bytes.Buffer
	if err := writeCAR(&b, s.head.cid, blocks); err != nil {
		return nil, err
	}
	if r.tamper == Truncated {
		b.Truncate(b.Len() - b.Len()/3)
	}
	return b.Bytes(), nil
}

func writeCAR(w io.Writer, root cid.Cid, blocks []block) error {
	if err := car.WriteHeader(&car.CarHeader{Roots: []cid.Cid{root}, Version: 1}, w); err != nil {
		return fmt.Errorf("write a CAR header: %w", err)
	}
	done := map[cid.Cid]bool{}
	for _, b := range blocks {
		if done[b.cid] {
			continue
		}
		done[b.cid] = true
		if err := carutil.LdWrite(w, b.cid.Bytes(), b.data); err != nil {
			return fmt.Errorf("write a CAR block: %w", err)
		}
	}
	return nil
}

// pathTo lists the nodes from n down to key, or to where key would be.
func pathTo(n *mst.Node, key []byte) ([]block, error) {
	var out []block
	for n != nil {
		b, err := nodeBlock(n)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
		n = below(n, key)
	}
	return out, nil
}

// below is the child of n that key lies in, or nil when n holds key itself or nothing lies there.
func below(n *mst.Node, key []byte) *mst.Node {
	var before *mst.Node // the child between the last smaller key and the next one
	for _, e := range n.Entries {
		if e.IsChild() {
			before = e.Child
			continue
		}
		switch bytes.Compare(e.Key, key) {
		case 0:
			return nil
		case 1:
			return before
		}
		before = nil
	}
	return before
}

// nodes lists n and all below it.
func nodes(n *mst.Node, out []block) ([]block, error) {
	b, err := nodeBlock(n)
	if err != nil {
		return nil, err
	}
	out = append(out, b)
	for _, e := range n.Entries {
		if e.Child != nil {
			if out, err = nodes(e.Child, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func nodeBlock(n *mst.Node) (block, error) {
	d := n.NodeData()
	b, id, err := d.Bytes()
	if err != nil {
		return block{}, fmt.Errorf("encode a tree node: %w", err)
	}
	return block{*id, b}, nil
}
