package workflow

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v4"
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
	size  int // of this value with all that is in it, aliases written out
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
	src = bytes.TrimPrefix(src, []byte(bom))
	if bytes.IndexByte(src, '\r') >= 0 {
		src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	}
	doc := document(r, src, lim)
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

// maxDocuments is how many documents of a file are looked at. One may hold something.
const maxDocuments = 100

// document runs the YAML library over src and returns the one document that must be in it.
func document(r *report, src []byte, lim Limits) (body *yaml.Node) {
	// The library is not ours and the bytes are hostile: whatever it trips over is a fault of this one file.
	defer func() {
		if p := recover(); p != nil {
			body = nil
			r.err(pos{}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	for range maxDocuments {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF):
			if body == nil {
				r.err(pos{1, 1}, codeEmpty, "write at least steps: with one command", "the file is empty")
			}
			return body
		case err != nil:
			diagnose(r, src, lim, err)
			return nil
		case doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 || empty(doc.Content[0]):
		case body == nil:
			body = doc.Content[0]
		default:
			r.err(placeOf(doc.Content[0]), codeDocuments, "put it into a file of its own",
				"one file holds one workflow; a second document starts here")
			return nil
		}
	}
	r.err(pos{1, 1}, codeDocuments, "write one document", "the file has more than %d documents", maxDocuments)
	return nil
}

// empty tells whether a document holds nothing that counts.
func empty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value == "" }

func placeOf(n *yaml.Node) pos { return pos{max(n.Line, 1), max(n.Column, 1)} }

// builder turns the library's tree into ours, with aliases and merge keys written out.
type builder struct {
	*report
	lim     Limits
	nodes   int // values of the file
	aliased int // values that aliases stand for
	stopped bool
	// anchors are the values that aliases stand for: once whole, and nil while they are being built.
	anchors map[*yaml.Node]*node
	slab    []node // not yet used
}

// quotedStyles are the scalars whose text is not in the file as it is.
const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// node converts n, which is depth collections deep; at is used where n has no place of its own.
func (b *builder) node(n *yaml.Node, depth int, at pos) *node {
	out := b.fresh()
	out.at, out.size = placeOf(n), 1
	b.nodes++
	switch {
	case b.stopped:
		return out
	case depth > b.lim.Depth:
		b.stopped = true
		b.err(out.at, codeLimit, "nest less", "collections nest deeper than the %d levels allowed", b.lim.Depth)
		return out
	case b.nodes > b.lim.Nodes:
		b.stopped = true
		b.err(out.at, codeLimit, fewerValues, "the file holds more than the %d values allowed", b.lim.Nodes)
		return out
	}
	if n.Anchor != "" {
		if b.anchors == nil {
			b.anchors = map[*yaml.Node]*node{}
		}
		b.anchors[n] = nil
		defer func() { b.anchors[n] = out }()
	}
	if n.Style&yaml.TaggedStyle != 0 {
		tag(b.report, out.at, n.Tag)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		out.plain = n.Style&quotedStyles == 0
		if out.plain && n.Tag == "!!null" {
			out.at, out.plain, out.text = at, false, n.Value
			break
		}
		out.kind, out.text = scalar, n.Value
		if out.plain && n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
			out.at = b.past(out.at)
		}
	case yaml.SequenceNode:
		out.kind = sequence
		out.items = make([]*node, 0, len(n.Content))
		for _, v := range n.Content {
			item := b.node(v, depth+1, placeOf(v))
			out.items = append(out.items, item)
			out.size += item.size
		}
	case yaml.MappingNode:
		b.pairs(out, n, depth)
	case yaml.AliasNode:
		return b.alias(n, out)
	default:
		b.err(out.at, codeYAML, "write it in a simpler form", "this is not supported in a workflow file")
	}
	return out
}

// fresh is a node of the slab, which costs less than one alone.
func (b *builder) fresh() *node {
	if len(b.slab) == 0 {
		b.slab = make([]node, 32)
	}
	out := &b.slab[0]
	b.slab = b.slab[1:]
	return out
}

// alias is the value that n stands for. It is shared with every other alias of it, and counted for each.
func (b *builder) alias(n *yaml.Node, out *node) *node {
	target := b.anchors[n.Alias]
	if target == nil {
		b.err(out.at, codeAnchor, "write the value out", "the alias %s stands for a value that holds it", quoted("*"+n.Value))
		return out
	}
	b.aliased += target.size
	if b.aliased > b.lim.Aliases {
		b.stopped = true
		b.err(out.at, codeLimit, "write fewer aliases, or smaller ones", "the aliases of the file stand for more than the %d values allowed", b.lim.Aliases)
		return out
	}
	return target
}

// past is where the value begins that stands after an anchor or a tag at at.
func (b *builder) past(at pos) pos {
	from, ok := b.offset(at)
	if !ok {
		return at
	}
	rest := b.src[from:]
	for i := 0; i < len(rest) && rest[i] != '\n'; {
		switch rest[i] {
		case '&', '!':
			for i < len(rest) && rest[i] != ' ' && rest[i] != '\n' {
				i++
			}
		case ' ':
			i++
		default:
			return pos{at.line, at.column + len([]rune(string(rest[:i])))}
		}
	}
	return at
}

func (b *builder) pairs(out *node, n *yaml.Node, depth int) {
	out.kind = mapping
	out.pairs = make([]pair, 0, len(n.Content)/2)
	if len(n.Content)/2 > maxMapKeys {
		b.err(out.at, codeLimit, "use fewer keys", "one mapping has more than the %d keys allowed", maxMapKeys)
		return
	}
	first := seen{few: make([]keyAt, 0, min(len(n.Content)/2, fewKeys))}
	var merges []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		key := b.node(k, depth+1, placeOf(k))
		if key.kind == null { // a plain null or ~ is the word itself
			key.kind, key.text = scalar, k.Value
		}
		value := b.node(n.Content[i+1], depth+1, key.at)
		out.size += key.size + value.size
		if key.kind != scalar {
			b.err(key.at, codeYAML, "write a plain word as the key", "a key must be text, this is %s", key)
			continue
		}
		if was, twice := first.at(key.text); twice {
			b.err(key.at, codeTwice, "remove one of them", "the key %s is already on line %d", quoted(key.text), was.line)
			continue
		}
		first.add(key.text, key.at)
		p := pair{key: key.text, at: key.at, value: value}
		if k.Tag == "!!merge" {
			merges = append(merges, p)
			continue
		}
		out.pairs = append(out.pairs, p)
	}
	for _, m := range merges {
		b.merge(out, m, &first)
	}
}

// merge puts the pairs of what << names behind those of out, but for keys that out has. Of several mappings the first
// one wins.
func (b *builder) merge(out *node, m pair, have *seen) {
	sources := []*node{m.value}
	if m.value.kind == sequence {
		sources = m.value.items
	}
	for _, s := range sources {
		if s.kind != mapping {
			b.err(m.at, codeMerge, "write << with a mapping, such as <<: *defaults", "a merge key takes a mapping or a list of mappings, this is %s", s)
			return
		}
		for _, p := range s.pairs {
			if _, there := have.at(p.key); !there {
				have.add(p.key, p.at)
				out.pairs = append(out.pairs, p)
			}
		}
	}
}
