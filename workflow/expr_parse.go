package workflow

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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

// operators, the longer ones first.
func exprOperators() []string {
	return []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ",", "."}
}

// next reads one token.
func (p *exprParser) next() *exprFault {
	for p.pos < len(p.src) && strings.IndexByte(" \t\n\r", p.src[p.pos]) >= 0 {
		p.pos++
	}
	at := p.pos
	p.tok = exprToken{kind: "end", at: at, end: at}
	if at == len(p.src) {
		return nil
	}
	rest := p.src[at:]
	switch c := rest[0]; {
	case c == '\'' || c == '"':
		return p.quoted(c)
	case c >= '0' && c <= '9' || c == '-' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		n := 1
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.' || isWord(rest[n])) {
			n++
		}
		p.take("number", rest[:n])
		if _, ok := parseNumber(rest[:n]); !ok {
			return &exprFault{at: at, end: p.pos, message: quoted(rest[:n]) + " is not a number", fix: "write digits, at most 15, or put a text in quotes", replace: ref("'" + rest[:n] + "'")}
		}
		return nil
	case isWord(c):
		n := 1
		for n < len(rest) && (isWord(rest[n]) || rest[n] >= '0' && rest[n] <= '9' || rest[n] == '-') {
			n++
		}
		p.take("word", rest[:n])
		return nil
	}
	for _, op := range exprOperators() {
		if strings.HasPrefix(rest, op) {
			p.take("op", op)
			return nil
		}
	}
	r, size := utf8.DecodeRuneInString(rest)
	f := &exprFault{at: at, end: at + size, message: fmt.Sprintf("the character %s has no meaning here", quoted(string(r))), fix: "remove it, or put a text in quotes"}
	switch {
	case strings.HasPrefix(rest, "${{") || strings.HasPrefix(rest, "}}"):
		f.end = at + len("${{") - strings.Count(rest[:2], "}")/2
		f.message, f.fix, f.replace = "if is an expression already and takes no ${{ }}", "remove the ${{ and }}", ref("")
	case r == '=':
		f.message, f.fix, f.replace = `a single = has no meaning here`, "write == to compare", ref("==")
	case r == '&' || r == '|':
		f.message, f.fix, f.replace = "a single "+string(r)+" has no meaning here", "write "+string(r)+string(r), ref(string(r)+string(r))
	}
	return f
}

func isWord(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func (p *exprParser) take(kind, text string) {
	p.tok = exprToken{kind: kind, text: text, at: p.pos, end: p.pos + len(text)}
	p.pos += len(text)
}

// quoted reads a text: in single quotes ” stands for one of them, in double quotes \ takes the next character as it is.
func (p *exprParser) quoted(quote byte) *exprFault {
	var b strings.Builder
	at := p.pos
	for i := at + 1; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '\\' && quote == '"' && i+1 < len(p.src):
			i++
			b.WriteByte(p.src[i])
		case c == quote && quote == '\'' && i+1 < len(p.src) && p.src[i+1] == quote:
			i++
			b.WriteByte(c)
		case c == quote:
			p.tok = exprToken{kind: "text", text: b.String(), at: at, end: i + 1}
			p.pos = i + 1
			return nil
		default:
			b.WriteByte(c)
		}
	}
	return &exprFault{at: at, end: len(p.src), message: "the quotes that open here are not closed", fix: "close the quotes"}
}

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

// templatePart is a piece of a template: text as it is, or an expression at byte at.
type templatePart struct {
	text string
	x    *expr
	at   int
}

// splitTemplate reads a template.
func splitTemplate(src string) ([]templatePart, *exprFault) {
	var out []templatePart
	if len(src) > groupBytes {
		return nil, &exprFault{end: 1, message: fmt.Sprintf("the template has %d bytes, more than the %d allowed", len(src), groupBytes), fix: "shorten it"}
	}
	for at := 0; at < len(src); {
		open := strings.Index(src[at:], "${{")
		if open < 0 {
			return append(out, templatePart{text: src[at:]}), nil
		}
		if open > 0 {
			out = append(out, templatePart{text: src[at : at+open]})
		}
		start := at + open + len("${{")
		length := strings.Index(src[start:], "}}")
		if length < 0 {
			return nil, &exprFault{at: at + open, end: start, message: "the ${{ that opens here is not closed", fix: "close it with }}"}
		}
		x, fault := parseExpr(src[start : start+length])
		if fault != nil {
			fault.at, fault.end = fault.at+start, fault.end+start
			return nil, fault
		}
		out = append(out, templatePart{x: x, at: start})
		at = start + length + len("}}")
	}
	return out, nil
}

func hasControl(s string) bool { return strings.IndexFunc(s, unicode.IsControl) >= 0 }
