package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// matrix reads the axes and what is added to and left out of their product.
func (d *decoder) matrix(p pair) *Matrix {
	d.use(FeatureMatrix, p.at)
	d.matrixAt = p.at
	m := &Matrix{}
	if p.value.kind != mapping {
		d.err(p.value.at, codeType, `write matrix: {go: ["1.25", "1.26"]}`, `"matrix" must be a mapping of names to lists, this is %s`, p.value)
		return m
	}
	before := d.errors
	var include, exclude *node
	for _, q := range p.value.pairs {
		switch q.key {
		case "include":
			include = q.value
			m.Include = d.cells(q)
		case "exclude":
			exclude = q.value
			m.Exclude = d.cells(q)
		default:
			m.Axes = append(m.Axes, d.axis(q))
		}
	}
	if d.errors == before {
		d.matrixFits(p, m, include, exclude)
	}
	return m
}

// axis reads the values of one dimension.
func (d *decoder) axis(p pair) Axis {
	a := Axis{Key: p.key}
	d.wordKey(p, "an axis")
	d.texts(p.key, p.at, p.value, d.lim.Cells, func(n *node, s string) {
		if slices.Contains(a.Values, s) {
			d.err(n.at, codeTwice, "remove one of them", "the value %s of %s is already in the list", quoted(s), quoted(p.key))
			return
		}
		if len(s) > cellValueLimit {
			d.err(n.at, codeLimit, "shorten it", "a value of %s has %d bytes, more than the %d allowed", quoted(p.key), len(s), cellValueLimit)
		}
		a.Values = append(a.Values, s)
	})
	if p.value.kind == sequence && len(p.value.items) == 0 {
		d.err(p.value.at, codeRequired, "add a value, or remove the axis", "%s is empty", quoted(p.key))
	}
	return a
}

func (d *decoder) wordKey(p pair, what string) {
	if !wordKey.MatchString(p.key) {
		d.err(p.at, codeValue, "use letters, digits, _ and - only, not starting with a digit, at most 50", "%s cannot name %s", quoted(p.key), what)
	}
}

// cells reads a list of mappings of names to texts.
func (d *decoder) cells(p pair) [][]Env {
	var out [][]Env
	for _, n := range d.sequence(p.key, p.at, p.value, d.lim.Cells) {
		if n.kind != mapping || len(n.pairs) == 0 {
			d.err(n.at, codeType, "write names with values, such as {go: \"1.26\"}", "an entry of %s must be a mapping, this is %s", quoted(p.key), n)
			continue
		}
		var cell []Env
		for _, q := range n.pairs {
			d.wordKey(q, "an axis")
			if s := d.word(q.key, q.at, q.value, cellValueLimit); s != "" {
				cell = append(cell, Env{q.key, s})
			}
		}
		out = append(out, cell)
	}
	return out
}

// matrixFits checks what the parts of a matrix say about each other.
func (d *decoder) matrixFits(p pair, m *Matrix, include, exclude *node) {
	keys := m.keys()
	variables := map[string]string{}
	for _, k := range keys {
		if other, twice := variables[upper(k)]; twice {
			d.err(p.at, codeTwice, "rename one of them", "%s and %s would be the same variable", quoted(other), quoted(k))
		}
		variables[upper(k)] = k
	}
	switch {
	case len(keys) == 0:
		d.err(p.value.at, codeRequired, `add an axis: matrix: {go: ["1.25", "1.26"]}`, `"matrix" is empty`)
		return
	case len(keys) > axesLimit:
		d.err(p.value.at, codeLimit, "use fewer axes", "the matrix has %d axes, more than the %d allowed", len(keys), axesLimit)
		return
	case m.product(d.lim.Cells) > d.lim.Cells:
		d.err(p.at, codeLimit, "use fewer values, or split the workflow", "the matrix has more than the %d cells allowed", d.lim.Cells)
		return
	}
	axes := m.axes()
	for i, e := range m.Exclude {
		at := exclude.items[i].at
		for _, x := range e {
			if !slices.Contains(axes, x.Key) {
				d.err(at, codeValue, "use one of "+list(axes), "there is no axis %s to exclude from (axes: %s)%s", quoted(x.Key), list(axes), didYouMean(x.Key, axes))
			}
		}
		if !slices.ContainsFunc(m.full(), func(c []Env) bool { return within(e, c) }) {
			d.warn(at, warnUnused, "remove it, or write values of the axes", "this entry of exclude leaves nothing out")
		}
	}
	switch n := len(m.Cells()); {
	case n == 0:
		d.err(p.at, codeRequired, "exclude less", "everything in the matrix is excluded")
	case n > d.lim.Cells:
		d.err(p.at, codeLimit, "use fewer values, or split the workflow", "the matrix has %d cells, more than the %d allowed", n, d.lim.Cells)
	}
	_ = include
}

// axes are the keys of the product.
func (m *Matrix) axes() []string {
	var out []string
	for _, a := range m.Axes {
		out = append(out, a.Key)
	}
	return out
}

// keys are all keys that some cell has, those of the product first.
func (m *Matrix) keys() []string {
	out := m.axes()
	for _, c := range m.Include {
		for _, e := range c {
			if !slices.Contains(out, e.Key) {
				out = append(out, e.Key)
			}
		}
	}
	return out
}

// product is how many cells the axes span; anything above most may come out as most+1.
func (m *Matrix) product(most int) int {
	n := 1
	for _, a := range m.Axes {
		if n *= len(a.Values); n > most {
			return most + 1
		}
	}
	return n
}

// full is the product of the axes; the last axis turns fastest.
func (m *Matrix) full() [][]Env {
	if len(m.Axes) == 0 {
		return nil
	}
	out := [][]Env{nil}
	for _, a := range m.Axes {
		next := make([][]Env, 0, len(out)*len(a.Values))
		for _, c := range out {
			for _, v := range a.Values {
				next = append(next, append(slices.Clone(c), Env{a.Key, v}))
			}
		}
		out = next
	}
	return out
}

// Cells spells the matrix out, in a fixed order: the product of the axes, the last one turning fastest, without the
// cells that have all that an entry of Exclude says; then Include, entry by entry. An entry that says something new
// (a key that is no axis) is added to every cell of the product that agrees with what it says of the axes. An entry
// that has nothing new, or agrees with no cell, is a cell of its own at the end, unless that cell is there.
func (m *Matrix) Cells() [][]Env {
	axes := m.axes()
	cells := slices.DeleteFunc(m.full(), func(c []Env) bool {
		return slices.ContainsFunc(m.Exclude, func(e []Env) bool { return within(e, c) })
	})
	product := len(cells)
	for _, e := range m.Include {
		var fixed, fresh []Env
		for _, x := range e {
			if slices.Contains(axes, x.Key) {
				fixed = append(fixed, x)
			} else {
				fresh = append(fresh, x)
			}
		}
		added := false
		for i, c := range cells[:product] {
			if len(fresh) > 0 && within(fixed, c) {
				cells[i], added = with(c, fresh), true
			}
		}
		if !added && !slices.ContainsFunc(cells, func(c []Env) bool { return len(c) == len(e) && within(e, c) }) {
			cells = append(cells, slices.Clone(e))
		}
	}
	return cells
}

// within tells whether cell c has everything of e.
func within(e, c []Env) bool {
	for _, x := range e {
		if !slices.Contains(c, x) {
			return false
		}
	}
	return true
}

// with is c with fresh in it; what an earlier entry has added is replaced.
func with(c, fresh []Env) []Env {
	out := slices.Clone(c)
	for _, x := range fresh {
		if i := slices.IndexFunc(out, func(e Env) bool { return e.Key == x.Key }); i >= 0 {
			out[i].Value = x.Value
		} else {
			out = append(out, x)
		}
	}
	return out
}

// cellNameBytes is how long the name of a workflow with its cell may be.
const cellNameBytes = 120

// cellName is the name of a cell of the workflow called name, as in test[go=1.26,os=linux]. Whatever cannot stand in
// addresses becomes _. taken are the names that are in use: where two cells would share a name, and where it would be
// too long, a digest of the cell tells them apart.
func cellName(name string, cell []Env, taken map[string]bool) string {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._:+-", r):
				return r
			}
			return '_'
		}, s)
	}
	var parts []string
	for _, e := range cell {
		parts = append(parts, e.Key+"="+plain(e.Value))
	}
	out := name + "[" + strings.Join(parts, ",") + "]"
	if len(out) > cellNameBytes || taken[out] {
		h := sha256.New()
		for _, e := range cell {
			h.Write([]byte(e.Key + "\x00" + e.Value + "\x00"))
		}
		end := "~" + hex.EncodeToString(h.Sum(nil)[:6]) + "]"
		out = out[:min(len(out)-1, cellNameBytes-len(end))] + end
	}
	return out
}
