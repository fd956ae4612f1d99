package logs

import "bytes"

// sight is a buffer as a reader sees it: without escape sequences and the control characters that pages and
// terminals leave out. A secret with such in its middle reads whole, so secrets are looked for in the text.
type sight struct {
	text []byte
	at   []int32 // where each byte of text stands in the buffer; nil when text is the buffer
	open int     // with at: where an escape sequence begins whose end has not come, or the buffer's length
}

// maxEscape is how long an escape sequence may be that is waited for, in bytes: no line is longer.
const maxEscape = maxContent

// unseen are the control characters that nobody sees. Line ends, tabs and carriage returns are part of the text.
var unseen = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = c != '\n' && c != '\t' && c != '\r'
	}
	t[0x7f] = true
	return t
}()

// look is buf without what is not seen. last says that nothing follows, so that a sequence without an end is one.
func look(buf []byte, last bool) sight {
	from := -1
	for i, c := range buf {
		if unseen[c] || c == 0xc2 {
			from = i
			break
		}
	}
	if from < 0 {
		return sight{text: buf}
	}
	s := sight{text: make([]byte, 0, len(buf)), at: make([]int32, 0, len(buf)), open: len(buf)}
	keep := func(i int) {
		s.text, s.at = append(s.text, buf[i]), append(s.at, int32(i))
	}
	for i := range from {
		keep(i)
	}
	for i := from; i < len(buf); {
		switch c := buf[i]; {
		case c == 0x1b:
			n, ended := escapeLen(buf[i:])
			if !ended && !last && n <= maxEscape {
				s.open = i
				return s
			}
			i += n
		case c == 0xc2 && i+1 == len(buf) && !last:
			s.open = i
			return s
		case c == 0xc2 && i+1 < len(buf) && buf[i+1] >= 0x80 && buf[i+1] <= 0x9f:
			i += 2
		case unseen[c]:
			i++
		default:
			keep(i)
			i++
		}
	}
	return s
}

// cut is where to cut a buffer of n bytes of whose text the last pending may be the beginning of a secret.
func (s sight) cut(n, pending int) int {
	switch {
	case s.at == nil:
		return n - pending
	case pending > 0:
		return int(s.at[len(s.at)-pending])
	}
	return s.open
}

// places adds to out the spans of the buffer that hits in the text cover, with what is not seen inside them.
// The first of out is one that was marked before.
func (s sight) places(hits, out []span) []span {
	for _, h := range hits {
		if s.at != nil {
			h = span{int(s.at[h.from]), int(s.at[h.to-1]) + 1}
		}
		if n := len(out) - 1; n >= 0 && h.from < out[n].to {
			out[n].to = max(out[n].to, h.to)
			continue
		}
		out = append(out, h)
	}
	return out
}

// escapeLen is how long the escape sequence at the beginning of b is, and whether its end is there. A sequence
// never goes on past the end of its line.
func escapeLen(b []byte) (n int, ended bool) {
	if len(b) < 2 {
		return len(b), false
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			switch c := b[i]; {
			case c >= 0x40 && c <= 0x7e:
				return i + 1, true
			case c < 0x20 || c > 0x7e:
				return i, true
			}
		}
		return len(b), false
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(b); i++ {
			switch b[i] {
			case 0x07:
				return i + 1, true
			case '\n':
				return i, true
			case 0x1b:
				if i+1 == len(b) {
					return len(b), false
				}
				if b[i+1] == '\\' {
					return i + 2, true
				}
				return i, true
			}
		}
		return len(b), false
	}
	for i := 1; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c > 0x2f {
			if c >= 0x30 && c <= 0x7e {
				i++
			}
			return i, true
		}
	}
	return len(b), false
}

// Plain is line as a reader sees it: without escape sequences, without the states that a carriage return wrote
// over, and without its end.
func Plain(line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	if i := bytes.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	return look(line, true).text
}
