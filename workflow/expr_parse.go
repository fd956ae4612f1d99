package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// The parts of an expression besides its operators.
const (
	opLiteral = "literal"
	opName    = "name"
	opCall    = "call"
)

// expr is a part of an expression, from byte at of its text.
type expr struct {
	op    string
	at    int
	end   int // of the part itself: its word, literal or operator
	name  []string
	value value
	args  []*expr
}

// exprFault is what is wrong with an expression, from byte at to byte end of its text. With replace, the text between
// can be exchanged for it.
type exprFault struct {
	at, end int
	message string
	fix     string
	replace *string
}

// asksStatus tells whether x calls one of the functions about what came before.
func (x *expr) asksStatus() bool {
	if x.op == opCall && slices.Contains(statusFunctions(), x.name[0]) {
		return true
	}
	return slices.ContainsFunc(x.args, (*expr).asksStatus)
}

func statusFunctions() []string { return []string{"success", "failure", "always", "cancelled"} }
func textFunctions() []string   { return []string{"contains", "startsWith", "endsWith", "matches"} }

// exprParser reads one expression.
type exprParser struct {
	src   string
	pos   int
	nodes int
	tok   exprToken
}

type exprToken struct {
	kind    string // op, word, text, number, end
	text    string
	at, end int
}

// parseExpr reads src; it does not look at types and names.
func parseExpr(src string) (x *expr, fault *exprFault) {
	if len(src) > exprBytes {
		return nil, &exprFault{end: 1, message: fmt.Sprintf("the expression has %d bytes, more than the %d allowed", len(src), exprBytes), fix: "decide inside a step"}
	}
	p := &exprParser{src: src}
	if fault = p.next(); fault != nil {
		return nil, fault
	}
	if p.tok.kind == "end" {
		return nil, &exprFault{end: len(src), message: "the expression is empty", fix: "write a condition such as success(), or remove the key"}
	}
	x, fault = p.or(0)
	if fault != nil {
		return nil, fault
	}
	if p.tok.kind != "end" {
		return nil, p.unexpected("&& or ||, or the end")
	}
	return x, nil
}

func (p *exprParser) unexpected(want string) *exprFault {
	got := quoted(p.src[p.tok.at:p.tok.end])
	if p.tok.kind == "end" {
		got = "the end"
	}
	f := &exprFault{at: p.tok.at, end: p.tok.end, message: "expected " + want + ", found " + got, fix: "write " + want}
	switch word := p.tok.text; {
	case p.tok.kind == "word" && strings.EqualFold(word, "and"):
		f.fix, f.replace = "write && for and", ref("&&")
	case p.tok.kind == "word" && strings.EqualFold(word, "or"):
		f.fix, f.replace = "write || for or", ref("||")
	}
	return f
}

func ref[T any](v T) *T { return &v }

func (p *exprParser) is(ops ...string) bool {
	return p.tok.kind == "op" && slices.Contains(ops, p.tok.text)
}

// node counts a part of the expression.
func (p *exprParser) node(x *expr, depth int) (*expr, *exprFault) {
	p.nodes++
	if p.nodes > exprNodes || depth > exprDepth {
		return nil, &exprFault{at: x.at, end: x.end, message: fmt.Sprintf("the expression has more than %d parts, or more than %d levels", exprNodes, exprDepth), fix: "decide inside a step"}
	}
	return x, nil
}

func (p *exprParser) or(depth int) (*expr, *exprFault) {
	return p.chain("||", depth, (*exprParser).and)
}

func (p *exprParser) and(depth int) (*expr, *exprFault) {
	return p.chain("&&", depth, (*exprParser).compare)
}

// chain reads operands with one operator between them. They share a level, so that a long chain is not deep.
func (p *exprParser) chain(op string, depth int, operand func(*exprParser, int) (*expr, *exprFault)) (*expr, *exprFault) {
	left, fault := operand(p, depth)
	if fault != nil || !p.is(op) {
		return left, fault
	}
	all := &expr{op: op, at: p.tok.at, end: p.tok.end, args: []*expr{left}}
	if all, fault = p.node(all, depth); fault != nil {
		return nil, fault
	}
	for p.is(op) {
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		right, fault := operand(p, depth)
		if fault != nil {
			return nil, fault
		}
		all.args = append(all.args, right)
	}
	return all, nil
}

func comparisons() []string { return []string{"==", "!=", "<", "<=", ">", ">="} }

func (p *exprParser) compare(depth int) (*expr, *exprFault) {
	left, fault := p.unary(depth)
	if fault != nil {
		return nil, fault
	}
	in := p.tok.kind == "word" && p.tok.text == "in"
	if !in && !p.is(comparisons()...) {
		return left, nil
	}
	x := &expr{op: p.tok.text, at: p.tok.at, end: p.tok.end, args: []*expr{left}}
	if x, fault = p.node(x, depth); fault != nil {
		return nil, fault
	}
	if fault := p.next(); fault != nil {
		return nil, fault
	}
	if in {
		return p.list(x, depth)
	}
	right, fault := p.unary(depth)
	if fault != nil {
		return nil, fault
	}
	x.args = append(x.args, right)
	if p.is(comparisons()...) {
		return nil, &exprFault{at: p.tok.at, end: p.tok.end, message: "comparisons cannot follow one another", fix: "join two comparisons with &&"}
	}
	return x, nil
}

// list reads the right side of in, a list of literals in brackets.
func (p *exprParser) list(x *expr, depth int) (*expr, *exprFault) {
	if !p.is("[") {
		return nil, p.unexpected("a list such as ['a', 'b'] after in")
	}
	for {
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		item, fault := p.unary(depth + 1)
		if fault != nil {
			return nil, fault
		}
		if item.op != opLiteral {
			return nil, &exprFault{at: item.at, end: item.end, message: "a list holds texts, numbers, true and false only", fix: "compare with == and join with ||"}
		}
		x.args = append(x.args, item)
		if p.is("]") {
			return x, p.next()
		}
		if !p.is(",") {
			return nil, p.unexpected(", or ]")
		}
	}
}

func (p *exprParser) unary(depth int) (*expr, *exprFault) {
	t := p.tok
	if !p.is("!") {
		return p.primary(depth)
	}
	x, fault := p.node(&expr{op: "!", at: t.at, end: t.end}, depth)
	if fault != nil {
		return nil, fault
	}
	if fault := p.next(); fault != nil {
		return nil, fault
	}
	arg, fault := p.unary(depth + 1)
	if fault != nil {
		return nil, fault
	}
	x.args = []*expr{arg}
	return x, nil
}

func (p *exprParser) primary(depth int) (*expr, *exprFault) {
	t := p.tok
	lit := func(v value) (*expr, *exprFault) {
		x, fault := p.node(&expr{op: opLiteral, at: t.at, end: t.end, value: v}, depth)
		if fault == nil {
			fault = p.next()
		}
		return x, fault
	}
	switch {
	case t.kind == "text":
		return lit(textOf(t.text))
	case t.kind == "number":
		n, _ := parseNumber(t.text)
		return lit(value{kind: kindNumber, number: n})
	case t.kind == "word" && (t.text == "true" || t.text == "false"):
		return lit(boolOf(t.text == "true"))
	case t.kind == "word":
		return p.name(depth)
	case p.is("("):
		if _, fault := p.node(&expr{at: t.at, end: t.end}, depth); fault != nil {
			return nil, fault
		}
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		x, fault := p.or(depth + 1)
		if fault != nil {
			return nil, fault
		}
		if !p.is(")") {
			return nil, p.unexpected(")")
		}
		return x, p.next()
	}
	return nil, p.unexpected("a name, a text in quotes, a number or (")
}

// name reads a name with its parts, or a call.
func (p *exprParser) name(depth int) (*expr, *exprFault) {
	x, fault := p.node(&expr{op: opName, at: p.tok.at, end: p.tok.end, name: []string{p.tok.text}}, depth)
	if fault != nil {
		return nil, fault
	}
	if fault := p.next(); fault != nil {
		return nil, fault
	}
	if p.is("(") {
		return p.arguments(x, depth)
	}
	for p.is(".", "[") && len(x.name) < 8 {
		index := p.is("[")
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		switch {
		case index && p.tok.kind == "text", !index && (p.tok.kind == "word" || p.tok.kind == "number"):
			x.name = append(x.name, p.tok.text)
		case index:
			return nil, p.unexpected("a text in quotes")
		default:
			return nil, p.unexpected("a name after the dot")
		}
		x.end = p.tok.end
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		if index {
			if !p.is("]") {
				return nil, p.unexpected("]")
			}
			x.end = p.tok.end
			if fault := p.next(); fault != nil {
				return nil, fault
			}
		}
	}
	return x, nil
}

func (p *exprParser) arguments(x *expr, depth int) (*expr, *exprFault) {
	x.op = opCall
	for {
		if fault := p.next(); fault != nil {
			return nil, fault
		}
		if p.is(")") && len(x.args) == 0 {
			return x, p.next()
		}
		arg, fault := p.or(depth + 1)
		if fault != nil {
			return nil, fault
		}
		x.args = append(x.args, arg)
		if p.is(")") {
			return x, p.next()
		}
		if !p.is(",") {
			return nil, p.unexpected(", or )")
		}
	}
}
