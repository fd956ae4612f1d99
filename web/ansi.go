package web

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxShown is how much of a line a page shows, in bytes; the raw log has all of it.
const maxShown = 8 << 10

// span is a piece of a line in one style. Class is made of the fixed words of classes.
type span struct {
	Class string `json:"class,omitempty"`
	Text  string `json:"text"`
}

// style is what SGR sequences set. Colours are 0 for the default and 1 to 16 for the sixteen of a terminal.
type style struct {
	fg, bg                                    int
	bold, dim, italic, under, strike, inverse bool
}

// class is the style as the page's classes.
func (s style) class() string {
	var c []string
	add := func(on bool, name string) {
		if on {
			c = append(c, name)
		}
	}
	if s.inverse && s.fg == 0 && s.bg == 0 {
		c = append(c, "inv")
	} else if s.inverse {
		s.fg, s.bg = s.bg, s.fg
	}
	add(s.fg > 0, "f"+strconv.Itoa(s.fg-1))
	add(s.bg > 0, "g"+strconv.Itoa(s.bg-1))
	add(s.bold, "bo")
	add(s.dim, "di")
	add(s.italic, "it")
	add(s.under, "un")
	add(s.strike, "st")
	return strings.Join(c, " ")
}

// painter turns what a terminal would show of a line into spans. The style goes on from line to line.
type painter struct{ s style }

// line is one line of output as spans, and how many earlier states of it a carriage return wrote over.
func (p *painter) line(text string) (spans []span, over int) {
	text = strings.TrimRight(text, "\r\n")
	if i := strings.LastIndexByte(text, '\r'); i >= 0 {
		over = strings.Count(text, "\r")
		text = text[i+1:]
	}
	var run strings.Builder
	shown := 0
	flush := func() {
		if run.Len() > 0 {
			spans = append(spans, span{Class: p.s.class(), Text: run.String()})
			run.Reset()
		}
	}
	for len(text) > 0 {
		if text[0] == 0x1b {
			n, sgr, ok := escape(text)
			text = text[n:]
			if ok {
				flush()
				p.s.apply(sgr)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		if shown >= maxShown {
			flush()
			return append(spans, span{Class: "cut", Text: "… the rest of this line is in the raw log"}), over
		}
		shown += n
		run.WriteString(visible(r))
	}
	flush()
	return spans, over
}

// visible is r as a page may show it: no control characters, and none that turn the order of text around.
func visible(r rune) string {
	switch {
	case r == '\t':
		return "\t"
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return ""
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
		return fmt.Sprintf("[U+%04X]", r)
	}
	return string(r)
}

// escape reads the escape sequence at the beginning of s: how long it is and, if it is SGR, its parameters.
// A sequence without an end takes the rest of the line.
func escape(s string) (n int, sgr string, ok bool) {
	if len(s) < 2 {
		return len(s), "", false
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			switch c := s[i]; {
			case c >= 0x40 && c <= 0x7e:
				params := s[2:i]
				return i + 1, params, c == 'm' && strings.Trim(params, "0123456789;:") == ""
			case c < 0x20 || c > 0x7e:
				return i, "", false // not a sequence after all: go on with what follows
			}
		}
		return len(s), "", false
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1, "", false
			}
			if s[i] == 0x1b {
				if i+1 < len(s) && s[i+1] == '\\' {
					return i + 2, "", false
				}
				return i, "", false
			}
		}
		return len(s), "", false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c > 0x2f {
			if c >= 0x30 && c <= 0x7e {
				i++
			}
			return i, "", false
		}
	}
	return len(s), "", false
}

// apply changes the style as the parameters of one SGR sequence say. Unknown ones change nothing.
func (s *style) apply(params string) {
	ps := strings.FieldsFunc(params, func(r rune) bool { return r == ';' || r == ':' })
	if len(ps) == 0 {
		*s = style{}
		return
	}
	for i := 0; i < len(ps) && i < 64; i++ {
		v, err := strconv.Atoi(ps[i])
		if err != nil {
			continue
		}
		switch {
		case v == 0:
			*s = style{}
		case v == 1:
			s.bold = true
		case v == 2:
			s.dim = true
		case v == 3:
			s.italic = true
		case v == 4, v == 21:
			s.under = true
		case v == 7:
			s.inverse = true
		case v == 9:
			s.strike = true
		case v == 22:
			s.bold, s.dim = false, false
		case v == 23:
			s.italic = false
		case v == 24:
			s.under = false
		case v == 27:
			s.inverse = false
		case v == 29:
			s.strike = false
		case v >= 30 && v <= 37:
			s.fg = v - 30 + 1
		case v == 39:
			s.fg = 0
		case v >= 40 && v <= 47:
			s.bg = v - 40 + 1
		case v == 49:
			s.bg = 0
		case v >= 90 && v <= 97:
			s.fg = v - 90 + 9
		case v >= 100 && v <= 107:
			s.bg = v - 100 + 9
		case v == 38, v == 48:
			c, used := extended(ps[i+1:])
			i += used
			if v == 38 {
				s.fg = c
			} else {
				s.bg = c
			}
		}
	}
}

// extended reads what follows 38 or 48: a colour of 256, or red, green and blue.
func extended(ps []string) (colour, used int) {
	num := func(i int) int {
		if i >= len(ps) {
			return 0
		}
		v, err := strconv.Atoi(ps[i])
		if err != nil || v < 0 || v > 255 {
			return 0
		}
		return v
	}
	switch num(0) {
	case 5:
		return of256(num(1)), min(2, len(ps))
	case 2:
		return nearest(num(1), num(2), num(3)), min(4, len(ps))
	}
	return 0, min(1, len(ps))
}

// of256 is the closest of the sixteen colours to one of 256.
func of256(c int) int {
	switch {
	case c < 16:
		return c + 1
	case c < 232:
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		c -= 16
		return nearest(level(c/36), level(c/6%6), level(c%6))
	}
	v := 8 + 10*(c-232)
	return nearest(v, v, v)
}

// nearest is the closest of the sixteen colours by hue: the page's own palette decides how light it is, so
// that text stays readable in both themes.
func nearest(r, g, b int) int {
	hi, lo := max(r, g, b), min(r, g, b)
	if hi-lo < 40 {
		switch {
		case hi < 64:
			return 1
		case hi < 170:
			return 9
		}
		return 8
	}
	mid := (hi + lo) / 2
	c := 0
	if r > mid {
		c |= 1
	}
	if g > mid {
		c |= 2
	}
	if b > mid {
		c |= 4
	}
	if lo > 90 {
		c += 8
	}
	return c + 1
}
