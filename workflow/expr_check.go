package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// scope is what the names of an expression may be, in one place of a file.
type scope struct {
	inputs []Declared
	axes   []string
	needs  []string
	// before tells whether anything came before, so that its status and its results can be asked for.
	before bool
}

// checkExpr reads src, which must come to true or false, and checks names and types.
func checkExpr(src string, s *scope) *exprFault {
	x, fault := parseExpr(src)
	if fault != nil {
		return fault
	}
	k, fault := x.check(s)
	switch {
	case fault != nil:
		return fault
	case k != kindBool:
		return &exprFault{at: x.at, end: x.end, message: "the expression gives " + k.String() + ", not true or false", fix: "compare it with something, as in trigger.branch == 'main'"}
	}
	return nil
}

// checkTemplate is checkExpr for text with ${{ }}, whose expressions may be anything.
func checkTemplate(src string, s *scope) *exprFault {
	parts, fault := splitTemplate(src)
	if fault != nil {
		return fault
	}
	for _, p := range parts {
		if p.x == nil {
			continue
		}
		if _, fault := p.x.check(s); fault != nil {
			fault.at, fault.end = fault.at+p.at, fault.end+p.at
			return fault
		}
	}
	return nil
}

func (x *expr) fault(fix, format string, args ...any) *exprFault {
	return &exprFault{at: x.at, end: x.end, message: fmt.Sprintf(format, args...), fix: fix}
}

// check tells the type of x, or what is wrong with it.
func (x *expr) check(s *scope) (valueKind, *exprFault) {
	switch x.op {
	case opLiteral:
		return x.value.kind, nil
	case opName:
		if f := nameFault(x, s); f != nil {
			return 0, f
		}
		return nameKind(x.name, s), nil
	case opCall:
		return kindBool, x.checkCall(s)
	}
	kinds := make([]valueKind, len(x.args))
	for i, a := range x.args {
		k, fault := a.check(s)
		if fault != nil {
			return 0, fault
		}
		kinds[i] = k
	}
	switch x.op {
	case "!", "&&", "||":
		for i, k := range kinds {
			if k != kindBool {
				return 0, x.args[i].fault("compare it with something, as in trigger.branch == 'main'", "%q takes true or false, this is %s", x.op, k)
			}
		}
	case "<", "<=", ">", ">=":
		for i, k := range kinds {
			if k != kindNumber {
				return 0, x.args[i].fault("compare numbers, or use == and !=", "%q compares numbers, this is %s", x.op, k)
			}
		}
	default:
		for i, k := range kinds[1:] {
			if k != kinds[0] {
				return 0, x.args[i+1].mixed(kinds[0], k)
			}
		}
		return kindBool, x.possible(s)
	}
	return kindBool, nil
}

// mixed is the fault of comparing x, of kind have, with what is of kind want.
func (x *expr) mixed(want, have valueKind) *exprFault {
	f := x.fault("compare values of one type", "%s cannot be compared with %s", want, have)
	if x.op == opLiteral && want == kindText && have == kindNumber {
		f.fix = "put it in quotes"
		f.message += "; values of the file are texts"
	}
	return f
}

// possible refuses to compare a name, whose values are known, with another value: it would never hold.
func (x *expr) possible(s *scope) *exprFault {
	for i, a := range x.args {
		known := nameValues(a, s)
		if known == nil {
			continue
		}
		for j, b := range x.args {
			if i == j || b.op != opLiteral || slices.Contains(known, b.value.text) {
				continue
			}
			f := b.fault("use one of "+list(known), "%s is never %s (it is one of: %s)%s",
				strings.Join(a.name, "."), quoted(b.value.text), list(known), didYouMean(b.value.text, known))
			if w := nearest(b.value.text, known); w != "" {
				f.fix, f.replace = "write '"+w+"'", ref("'"+w+"'")
			}
			return f
		}
	}
	return nil
}

// nameValues is what a name can be, or nil when that is not known.
func nameValues(x *expr, s *scope) []string {
	if x.op != opName {
		return nil
	}
	switch {
	case strings.Join(x.name, ".") == "trigger.event":
		return events()
	case strings.Join(x.name, ".") == "trigger.pull.action":
		return append(actions(), "") // empty when there is no pull request
	case x.name[0] == "needs" && x.name[len(x.name)-1] == "result" && len(x.name) == 3:
		return outcomes()
	case x.name[0] == "inputs" && len(x.name) == 2 && s != nil:
		for _, d := range s.inputs {
			if d.Key == x.name[1] && d.Type == InputChoice {
				return append(slices.Clone(d.Options), "") // empty when it is not given
			}
		}
	}
	return nil
}

func (x *expr) checkCall(s *scope) *exprFault {
	name := x.name[0]
	known := textFunctions()
	if s == nil || s.before {
		known = append(known, statusFunctions()...)
	}
	switch {
	case !slices.Contains(known, name) && slices.Contains(statusFunctions(), name):
		return x.fault("use names such as trigger.branch", "%s() cannot be asked here: nothing has run yet", name)
	case !slices.Contains(known, name):
		f := x.fault("use one of "+list(known), "there is no function %s%s", quoted(name), didYouMean(name, known))
		if w := nearest(name, known); w != "" {
			f.fix, f.replace = "write "+w, ref(w)
		}
		return f
	case slices.Contains(statusFunctions(), name):
		if len(x.args) > 0 {
			return x.fault("write "+name+"()", "%s takes nothing", name)
		}
		return nil
	case len(x.args) != 2:
		return x.fault("write "+name+"(text, 'part')", "%s takes two texts, here are %d", name, len(x.args))
	}
	for _, a := range x.args {
		k, fault := a.check(s)
		if fault != nil {
			return fault
		}
		if k != kindText {
			return a.fault("hand over two texts", "%s takes texts, this is %s", name, k)
		}
	}
	if p := x.args[1]; name == "matches" {
		switch {
		case p.op != opLiteral:
			return p.fault("write the pattern in quotes", "the pattern of matches must be written out")
		case p.value.text == "" || !doublestar.ValidatePattern(p.value.text):
			return p.fault(`close every [ and {, or write \[ for the character itself`, "the pattern %s cannot be read", quoted(p.value.text))
		case len(p.value.text) > groupBytes || alternatives(p.value.text) > maxAlternatives:
			return p.fault("write several patterns with ||", "the pattern %s is too long, or its braces spell out more than %d", quoted(p.value.text), maxAlternatives)
		}
	}
	return nil
}
