package logs

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// mark stands where a secret stood.
const mark = "***"

// keyLen is how many bytes of a pattern the filter looks at. No pattern is shorter.
const keyLen = 4

// filterBits is the base-2 logarithm of the filter's size.
const filterBits = 14

// patterns are all the byte strings that must not reach the disk.
//
// Every position of the output is looked up by the hash of its next bytes, so the cost of a byte does not
// grow with the number of secrets.
type patterns struct {
	filter  []bool              // by hash of a key: whether a pattern may begin with it
	byKey   map[uint32][][]byte // the patterns that begin with a key, the longest first
	starts  map[string]struct{} // every beginning of a pattern that is shorter than a key
	longest int
}

func newPatterns(values []string) patterns {
	var p patterns
	for _, v := range values {
		p.include(v)
	}
	return p
}

// include adds the forms of a value. What shares p sees them too, so whoever includes holds off all others.
func (p *patterns) include(value string) {
	for _, f := range forms(value) {
		// Output is searched as a reader sees it.
		if f = look(f, true).text; len(f) >= shortest {
			p.add(f)
		}
	}
}

func (p *patterns) add(f []byte) {
	if p.byKey == nil {
		p.filter = make([]bool, 1<<filterBits)
		p.byKey, p.starts = map[uint32][][]byte{}, map[string]struct{}{}
	}
	k := binary.LittleEndian.Uint32(f)
	if slices.ContainsFunc(p.byKey[k], func(o []byte) bool { return bytes.Equal(o, f) }) {
		return
	}
	p.filter[hash(k)] = true
	same := append(p.byKey[k], f)
	slices.SortFunc(same, func(a, b []byte) int { return len(b) - len(a) })
	p.byKey[k] = same
	for n := 1; n < keyLen; n++ {
		p.starts[string(f[:n])] = struct{}{}
	}
	p.longest = max(p.longest, len(f))
}

func hash(k uint32) uint32 { return k * 0x9E3779B1 >> (32 - filterBits) }

// span is a part of a buffer.
type span struct{ from, to int }

// find adds to hits the places of every pattern in b that begin at from or later; of those with one beginning
// the longest. Places that overlap, also with the last of hits, become one.
func (p patterns) find(hits []span, b []byte, from int) []span {
	for i := from; i+keyLen <= len(b); i++ {
		k := binary.LittleEndian.Uint32(b[i:])
		if !p.filter[hash(k)] {
			continue
		}
		for _, pat := range p.byKey[k] {
			if !bytes.HasPrefix(b[i:], pat) {
				continue
			}
			if n := len(hits) - 1; n >= 0 && i < hits[n].to {
				hits[n].to = max(hits[n].to, i+len(pat))
			} else {
				hits = append(hits, span{i, i + len(pat)})
			}
			break
		}
	}
	return hits
}

// pending is how many bytes at the end of b may be the beginning of a pattern.
func (p patterns) pending(b []byte) int {
	for i := max(0, len(b)-p.longest+1); i < len(b); i++ {
		rest := b[i:]
		if len(rest) < keyLen {
			if _, ok := p.starts[string(rest)]; ok {
				return len(rest)
			}
			continue
		}
		k := binary.LittleEndian.Uint32(rest)
		if !p.filter[hash(k)] {
			continue
		}
		for _, pat := range p.byKey[k] {
			if len(pat) > len(rest) && bytes.HasPrefix(pat, rest) {
				return len(rest)
			}
		}
	}
	return 0
}

// masker hides patterns in one stream of bytes. It withholds the end of the stream only while it may be the
// beginning of a pattern, so less than the longest pattern.
type masker struct {
	p    patterns
	held []byte
	// covered is how many bytes of held belong to a place whose mark has been given out. They are held since
	// a longer or an overlapping place may begin in them.
	covered int
}

// feed appends to out what of held+b is safe to show. How the stream is cut into calls does not change what
// is shown in all.
func (m *masker) feed(out, b []byte) []byte {
	if m.p.longest == 0 && len(m.held) == 0 {
		return append(out, b...)
	}
	buf := b
	if len(m.held) > 0 {
		buf = append(m.held, b...)
	}
	cut := len(buf)
	seen := m.look(buf, false)
	if m.p.longest > 0 {
		cut = seen.cut(len(buf), m.p.pending(seen.text))
	}
	out, covered := m.show(out, buf, seen, cut)
	m.held, m.covered = append(m.held[:0], buf[cut:]...), covered
	return out
}

// flush appends what was withheld.
func (m *masker) flush(out []byte) []byte {
	out, _ = m.show(out, m.held, m.look(m.held, true), len(m.held))
	m.held, m.covered = nil, 0
	return out
}

// look is buf as a reader sees it. last says that nothing follows.
func (m *masker) look(buf []byte, last bool) sight {
	if m.p.longest == 0 {
		return sight{text: buf}
	}
	return look(buf, last)
}

// show appends buf[:cut] to out with the mark in place of every hit, and tells how many bytes after the cut
// belong to one that has been marked.
func (m *masker) show(out, buf []byte, seen sight, cut int) (_ []byte, covered int) {
	var space, found [16]span
	hits := append(space[:0], span{0, m.covered}) // its mark is out already
	if m.p.longest > 0 {
		hits = seen.places(m.p.find(found[:0], seen.text, 0), hits)
	}
	at := 0
	for i, h := range hits {
		if h.from >= cut && i > 0 {
			break
		}
		if i > 0 {
			out = append(append(out, buf[at:h.from]...), mark...)
		}
		at = h.to
	}
	if at > cut {
		return out, at - cut
	}
	return append(out, buf[at:cut]...), 0
}
