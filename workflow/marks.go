package workflow

import "bytes"

// marksPerValue is how many marks of structure a file may have for each value that is allowed. A value needs one or
// two; the rest is for plain text and comments that look like structure.
const marksPerValue = 4

// fewerValues mends a file that holds too much.
const fewerValues = "split the workflow into several files, and write long text as a block, such as command: |"

// marks counts what could start a value, before the YAML library builds any: it takes some microseconds for each.
// Text of block scalars starts none, but where a bracket or a quote is open, what looks like the start of such a scalar
// is not one.
type marks struct {
	structure, text int
	open            bool // some line opens a quote or a bracket that it does not close
}

// most is how many values there can be.
func (m *marks) most() int {
	if m.open {
		return m.structure + m.text
	}
	return m.structure
}

// inside counts a line that belongs to a block scalar.
func (m *marks) inside(line []byte) {
	n, _ := count(line)
	m.text += n
}

// outside counts any other line.
func (m *marks) outside(line []byte) {
	n, open := count(line)
	m.structure += n
	m.open = m.open || open
}

// count returns the marks of line, and whether it leaves something open.
func count(line []byte) (n int, open bool) {
	line = bytes.TrimLeft(line, " ")
	if len(line) > 0 && line[0] == '#' {
		return 0, false
	}
	depth, single, double := 0, 0, 0
	for i, c := range line {
		switch c {
		case ',':
			n++
		case '[', '{':
			n++
			depth++
		case ']', '}':
			depth--
		case '-', '?', ':':
			if i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t' {
				n++
			}
		case '\'':
			single++
		case '"':
			double++
		}
	}
	return n, depth != 0 || single%2+double%2 > 0
}
