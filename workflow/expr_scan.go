package workflow

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
		if inner, ok := strings.CutSuffix(strings.TrimSpace(p.src[len(p.src)-len(rest):]), "}}"); ok && at == 0 && strings.Count(inner, "}}") == 0 {
			f.end, f.replace = len(p.src), ref(strings.TrimSpace(strings.TrimPrefix(inner, "${{")))
		}
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
