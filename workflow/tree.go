package workflow

import (
	"bytes"
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// kind is what a node is.
type kind int

const (
	null kind = iota
	scalar
	sequence
	mapping
)

// node is one value of the file. Scalars keep the text of the source: no word is a boolean and no number
// is re-printed, so that 1.10, 0755, on and NO stay what the author wrote.
type node struct {
	kind  kind
	at    pos
	text  string
	plain bool // a scalar without quotes
	items []*node
	pairs []pair
}

type pair struct {
	key   string
	at    pos // of the key
	value *node
}

// String says what n is, for a sentence.
func (n *node) String() string {
	switch n.kind {
	case scalar:
		return quoted(n.text)
	case sequence:
		return "a list"
	case mapping:
		return "a mapping"
	}
	return "nothing"
}

// readTree parses src into a mapping. It returns nil when that cannot be done; the report says why.
func readTree(r *report, src []byte, lim Limits) *node {
	scanBytes(r, src, lim)
	if r.failed() {
		return nil
	}
	src = bytes.ReplaceAll(bytes.TrimPrefix(src, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	doc := parseDocument(r, src, lim)
	if doc == nil || r.failed() {
		return nil
	}
	b := builder{report: r, lim: lim}
	n := b.node(doc, 0, pos{1, 1})
	if r.failed() {
		return nil
	}
	if n.kind != mapping {
		r.err(n.at, codeType, "start with a key, such as when: or steps:", "a workflow file is a mapping of keys, this is %s", n)
		return nil
	}
	return n
}

// parseDocument runs the YAML library over src and returns the one document that must be in it.
func parseDocument(r *report, src []byte, lim Limits) (body ast.Node) {
	// The library is not ours and the bytes are hostile: whatever it trips over is a fault of this one file.
	defer func() {
		if p := recover(); p != nil {
			body = nil
			r.err(pos{}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
		}
	}()
	tokens := tokenize(r, src, lim)
	if r.failed() {
		return nil
	}
	scanTokens(r, src, tokens, lim)
	if r.failed() {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var e yaml.Error
		if errors.As(err, &e) {
			syntax(r, src, e.GetToken(), e.GetMessage())
		} else {
			r.err(pos{}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
		}
		return nil
	}
	for _, d := range file.Docs {
		switch {
		case empty(d.Body):
		case body == nil:
			body = d.Body
		default:
			r.err(place(d.Body.GetToken()), codeDocuments, "put it into a file of its own",
				"one file holds one workflow; a second document starts here")
			return nil
		}
	}
	if body == nil {
		r.err(pos{1, 1}, codeEmpty, "write at least steps: with one command", "the file is empty")
	}
	return body
}

// empty tells whether a document holds nothing that counts.
func empty(n ast.Node) bool {
	switch n.(type) {
	case nil, *ast.NullNode, *ast.CommentNode, *ast.CommentGroupNode, *ast.DirectiveNode:
		return true
	}
	return false
}

// builder turns the library's tree into ours.
type builder struct {
	*report
	lim   Limits
	nodes int
}

// node converts n, which is depth collections deep; at is used where the library knows no place.
func (b *builder) node(n ast.Node, depth int, at pos) *node {
	out := &node{at: at}
	b.nodes++
	if b.nodes > b.lim.Nodes || depth > b.lim.Depth {
		if b.nodes == b.lim.Nodes+1 || depth > b.lim.Depth {
			b.err(at, codeLimit, "split the workflow into several files",
				"the file holds more than the %d values or %d levels allowed", b.lim.Nodes, b.lim.Depth)
		}
		return out
	}
	if n == nil {
		return out
	}
	if t := n.GetToken(); t != nil {
		out.at = place(t)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		out.at = at
	case *ast.StringNode:
		out.kind, out.text = scalar, n.Value
		out.plain = n.Token.Type == token.StringType
		// A plain text of several lines is folded to one, and ends at a comment. Where the library keeps a
		// line break or a comment, other readers do not, and the author meant one or the other.
		if out.plain && (strings.Contains(n.Value, "\n") || strings.Contains(n.Value, " #")) {
			b.err(out.at, codeYAML, "start the text with | and indent its lines alike",
				"a text of several lines without quotes must not hold blank lines, comments or deeper lines")
		}
	case *ast.LiteralNode:
		out.kind, out.text = scalar, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text, out.plain = scalar, n.GetToken().Value, true
	case *ast.SequenceNode:
		out.kind = sequence
		for i, v := range n.Values {
			item := out.at
			if i < len(n.Entries) && n.Entries[i] != nil && n.Entries[i].Start != nil {
				item = place(n.Entries[i].Start)
			}
			out.items = append(out.items, b.node(v, depth+1, item))
		}
	case *ast.MappingNode:
		b.pairs(out, n.Values, depth)
	case *ast.MappingValueNode:
		b.pairs(out, []*ast.MappingValueNode{n}, depth)
	case *ast.TagNode:
		return b.node(n.Value, depth, out.at)
	default:
		b.err(out.at, codeYAML, "write it in a simpler form", "%s is not supported in a workflow file", strings.ToLower(n.Type().String()))
	}
	return out
}

func (b *builder) pairs(out *node, values []*ast.MappingValueNode, depth int) {
	out.kind = mapping
	first := make(map[string]pos, len(values))
	for i, v := range values {
		key := b.node(v.Key, depth+1, out.at)
		if i == 0 && !v.IsFlowStyle {
			out.at = key.at
		}
		if key.kind == null && v.Key != nil && v.Key.GetToken() != nil {
			key.kind, key.text, key.at = scalar, v.Key.GetToken().Value, place(v.Key.GetToken())
		}
		if key.kind != scalar {
			b.err(key.at, codeYAML, "write a plain word as the key", "a key must be text, this is %s", key)
			continue
		}
		if was, twice := first[key.text]; twice {
			b.err(key.at, codeTwice, "remove one of them", "the key %s is already on line %d", quoted(key.text), was.line)
			continue
		}
		first[key.text] = key.at
		out.pairs = append(out.pairs, pair{key: key.text, at: key.at, value: b.node(v.Value, depth+1, key.at)})
	}
}
