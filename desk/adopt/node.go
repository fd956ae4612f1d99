package adopt

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// node is a value of the source file.
type node struct {
	line  int
	text  string // of a scalar
	isMap bool
	isSeq bool
	null  bool
	pairs []pair
	items []*node
}

type pair struct {
	key   string
	line  int
	value *node
}

// Bounds of a source file.
const (
	maxBytes = 256 << 10
	maxNodes = 20_000
	maxDepth = 32
)

// ErrSource is a file that cannot be read as YAML, or is too large.
var ErrSource = errors.New("adopt: the file cannot be read")

// read parses src. Aliases stand for what they name.
func read(src []byte) (n *node, err error) {
	if len(src) > maxBytes {
		return nil, fmt.Errorf("%w: it is larger than %d KiB", ErrSource, maxBytes>>10)
	}
	defer func() {
		if p := recover(); p != nil { // the library's; the bytes are anybody's
			n, err = nil, fmt.Errorf("%w: it is not YAML that can be understood", ErrSource)
		}
	}()
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSource, err.Error())
	}
	if len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return nil, fmt.Errorf("%w: it is empty", ErrSource)
	}
	r := reader{anchors: map[string]ast.Node{}}
	n = r.node(f.Docs[0].Body, 0)
	if r.count > maxNodes {
		return nil, fmt.Errorf("%w: it holds more than %d values", ErrSource, maxNodes)
	}
	if !n.isMap {
		return nil, fmt.Errorf("%w: it is no mapping of keys", ErrSource)
	}
	return n, nil
}

type reader struct {
	anchors map[string]ast.Node
	count   int
}

func (r *reader) node(a ast.Node, depth int) *node {
	n := &node{null: true}
	r.count++
	if a == nil || r.count > maxNodes || depth > maxDepth {
		return n
	}
	if t := a.GetToken(); t != nil && t.Position != nil {
		n.line = t.Position.Line
	}
	switch a := a.(type) {
	case *ast.AnchorNode:
		r.anchors[a.Name.GetToken().Value] = a.Value
		return r.node(a.Value, depth)
	case *ast.AliasNode:
		return r.node(r.anchors[a.Value.GetToken().Value], depth+1)
	case *ast.TagNode:
		return r.node(a.Value, depth)
	case *ast.StringNode:
		n.null, n.text = false, a.Value
	case *ast.LiteralNode:
		n.null, n.text = false, a.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.null, n.text = false, a.GetToken().Value
	case *ast.SequenceNode:
		n.null, n.isSeq = false, true
		for _, v := range a.Values {
			n.items = append(n.items, r.node(v, depth+1))
		}
	case *ast.MappingNode:
		r.pairs(n, a.Values, depth)
	case *ast.MappingValueNode:
		r.pairs(n, []*ast.MappingValueNode{a}, depth)
	}
	return n
}

func (r *reader) pairs(n *node, values []*ast.MappingValueNode, depth int) {
	n.null, n.isMap = false, true
	for i, v := range values {
		t := v.Key.GetToken()
		p := pair{key: t.Value, line: t.Position.Line, value: r.node(v.Value, depth+1)}
		if i == 0 {
			n.line = p.line
		}
		if p.value.line == 0 {
			p.value.line = p.line
		}
		if p.key == "<<" && p.value.isMap {
			n.pairs = append(n.pairs, p.value.pairs...)
			continue
		}
		n.pairs = append(n.pairs, p)
	}
}

// get is the value of key, or nil.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i := len(n.pairs) - 1; i >= 0; i-- { // over those that a merge brought
		if n.pairs[i].key == key {
			return n.pairs[i].value
		}
	}
	return nil
}

// str is the text of key, or "".
func (n *node) str(key string) string {
	if v := n.get(key); v != nil {
		return v.text
	}
	return ""
}

// list is n as texts: of a list its items, of a text itself.
func (n *node) list() []string {
	if n == nil || n.null || n.isMap {
		return nil
	}
	if !n.isSeq {
		return []string{n.text}
	}
	var out []string
	for _, i := range n.items {
		if !i.isMap && !i.isSeq && !i.null {
			out = append(out, i.text)
		}
	}
	return out
}
