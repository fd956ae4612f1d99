package logs

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// mark stands where a secret stood.
const mark = "***"

// shortest is the least length of a form that is masked. Shorter ones would hide ordinary words.
const shortest = 6

// patterns are all the byte strings that must not reach the disk. A value never changes once it is built.
type patterns struct {
	all     [][]byte
	longest int
}

// forms lists the spellings of a secret that people print by accident: as it is, in base64 at each of its
// three alignments, hex, URL-, JSON- and shell-escaped, and each line of a value with several.
func forms(value string) [][]byte {
	var out [][]byte
	add := func(s string) {
		if len(s) >= shortest {
			out = append(out, []byte(s))
		}
	}
	add(value)
	add(strings.TrimSpace(value))
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, l := range lines {
			if l = strings.TrimSpace(l); len(l) >= 8 {
				add(l)
			}
		}
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for phase := range 3 {
			add(base64At(enc, value, phase))
		}
	}
	add(hex.EncodeToString([]byte(value)))
	add(strings.ToUpper(hex.EncodeToString([]byte(value))))
	add(url.QueryEscape(value))
	add(url.PathEscape(value))
	// json.Marshal of a string cannot fail.
	j, _ := json.Marshal(value)
	add(strings.Trim(string(j), `"`))
	add(strings.ReplaceAll(value, "'", `'\''`))
	return out
}

// base64At is the part of value's base64 that does not depend on what stands before and after it, when it
// starts at a byte whose index is phase modulo 3.
func base64At(enc *base64.Encoding, value string, phase int) string {
	full := enc.EncodeToString(append(make([]byte, phase), value...))
	from := []int{0, 2, 3}[phase]
	to := (phase + len(value)) * 8 / 6
	if to <= from {
		return ""
	}
	return full[from:to]
}

func newPatterns(values []string) patterns {
	var p patterns
	for _, v := range values {
		for _, f := range forms(v) {
			if !slices.ContainsFunc(p.all, func(o []byte) bool { return bytes.Equal(o, f) }) {
				p.all = append(p.all, f)
				p.longest = max(p.longest, len(f))
			}
		}
	}
	return p
}

// span is a part of a buffer.
type span struct{ from, to int }

// find returns the merged places of every pattern in b, in order.
func (p patterns) find(b []byte) []span {
	var hits []span
	for _, pat := range p.all {
		for at := 0; ; {
			i := bytes.Index(b[at:], pat)
			if i < 0 {
				break
			}
			hits = append(hits, span{at + i, at + i + len(pat)})
			at += i + 1 // a value that repeats itself may overlap its own next place
		}
	}
	if len(hits) < 2 {
		return hits
	}
	slices.SortFunc(hits, func(a, b span) int { return a.from - b.from })
	merged := hits[:1]
	for _, h := range hits[1:] {
		if last := &merged[len(merged)-1]; h.from < last.to {
			last.to = max(last.to, h.to)
			continue
		}
		merged = append(merged, h)
	}
	return merged
}

// pending is how many bytes at the end of b may be the beginning of a pattern.
func (p patterns) pending(b []byte) int {
	best := 0
	for _, pat := range p.all {
		for n := min(len(pat)-1, len(b)); n > best; n-- {
			if b[len(b)-n] == pat[0] && bytes.Equal(b[len(b)-n:], pat[:n]) {
				best = n
				break
			}
		}
	}
	return best
}

// masker hides patterns in one stream of bytes. It withholds the end of the stream only while it may be the
// beginning of a pattern.
type masker struct {
	p    patterns
	held []byte
}

// feed appends to out what of held+b is safe to show.
func (m *masker) feed(out, b []byte) []byte {
	if len(m.p.all) == 0 {
		return append(out, b...)
	}
	buf := b
	if len(m.held) > 0 {
		buf = append(m.held, b...)
	}
	cut := len(buf) - m.p.pending(buf)
	hits := m.p.find(buf)
	// A place that reaches over the cut stays whole: it may yet grow into a longer one.
	for i := len(hits) - 1; i >= 0 && hits[i].to > cut; i-- {
		cut = min(cut, hits[i].from)
	}
	out = replace(out, buf[:cut], hits)
	m.held = append([]byte(nil), buf[cut:]...)
	return out
}

// flush appends what was withheld.
func (m *masker) flush(out []byte) []byte {
	out = replace(out, m.held, m.p.find(m.held))
	m.held = nil
	return out
}

// replace appends b to out with the mark in place of every hit that lies in b.
func replace(out, b []byte, hits []span) []byte {
	at := 0
	for _, h := range hits {
		if h.to > len(b) {
			break
		}
		out = append(append(out, b[at:h.from]...), mark...)
		at = h.to
	}
	return append(out, b[at:]...)
}
