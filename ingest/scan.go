package ingest

import "bytes"

// scan walks over the members of a JSON object without decoding them: most frames of a stream concern nobody here,
// and a whole decode costs ten times what reading them from the socket does. It is not a validator: what it cannot
// follow ends it, and the frame is then decoded whole.
type scan struct {
	b []byte
	i int
}

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

// eat takes the character c, with space before it.
func (s *scan) eat(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// member takes the name of the next member and the colon behind it. first is for the first one of an object.
func (s *scan) member(first bool) ([]byte, bool) {
	if !first && !s.eat(',') {
		return nil, false
	}
	name, ok := s.text()
	return name, ok && s.eat(':')
}

// text takes a string and returns what stands between its quotes. One with escapes is not followed.
func (s *scan) text() ([]byte, bool) {
	if !s.eat('"') {
		return nil, false
	}
	n := bytes.IndexByte(s.b[s.i:], '"')
	if n < 0 {
		return nil, false
	}
	t := s.b[s.i : s.i+n]
	s.i += n + 1
	return t, bytes.IndexByte(t, '\\') < 0
}

// number takes a whole number of at most 18 digits.
func (s *scan) number() (n int64, ok bool) {
	s.space()
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		n = n*10 + int64(s.b[s.i]-'0')
		s.i++
		if s.i-from > 18 {
			return 0, false
		}
	}
	if s.i == from || s.i >= len(s.b) {
		return 0, false
	}
	c := s.b[s.i] // what follows must end the number: no fraction, no exponent
	return n, c == ',' || c == '}' || c == ' ' || c == '\n'
}

// skip passes over one value of any kind.
func (s *scan) skip() bool {
	s.space()
	for depth := 0; s.i < len(s.b); {
		switch c := s.b[s.i]; c {
		case '"':
			if !s.skipText() {
				return false
			}
		case '{', '[':
			depth++
			s.i++
			continue
		case '}', ']':
			if depth == 0 {
				return false
			}
			depth--
			s.i++
		case ',':
			if depth == 0 {
				return true
			}
			s.i++
			continue
		default:
			s.i++
			if depth > 0 {
				continue
			}
			for s.i < len(s.b) && s.b[s.i] != ',' && s.b[s.i] != '}' && s.b[s.i] != ']' {
				s.i++
			}
		}
		if depth == 0 {
			return true
		}
	}
	return false
}

// skipText passes over a string, escapes and all.
func (s *scan) skipText() bool {
	s.i++
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			return false
		}
		end := s.i + n
		slashes := 0
		for end-slashes > s.i && s.b[end-1-slashes] == '\\' {
			slashes++
		}
		s.i = end + 1
		if slashes%2 == 0 {
			return true
		}
	}
}
