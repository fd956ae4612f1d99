package workflow

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Expr is a condition, such as `trigger.branch == "main" && failure()`. It is text in the language of
// docs/workflow.md, which has no loops, no variables and no functions but its own. An Expr in a Spec was checked by
// Parse. The empty Expr is success().
type Expr string

// Template is text with expressions in ${{ }}. One in a Spec was checked by Parse.
type Template string

// What an expression may cost. All of it is linear in these.
const (
	exprBytes = 1000 // of one expression
	exprDepth = 32   // of nesting
	exprNodes = 200  // parts of one expression
	// matchBytes is how long a text may be that is compared with a pattern.
	matchBytes = 4096
	groupBytes = 256 // of a template, and of what it comes to
)

// valueKind is the type of a value. No type turns into another one.
type valueKind int

const (
	kindText valueKind = iota
	kindNumber
	kindBool
	kindList
)

// String is k for a sentence.
func (k valueKind) String() string {
	return [...]string{"text", "a number", "true or false", "a list"}[k]
}

// value is a value of the expression language.
type value struct {
	kind   valueKind
	text   string
	number float64
	truth  bool
}

func textOf(s string) value { return value{kind: kindText, text: s} }
func boolOf(b bool) value   { return value{kind: kindBool, truth: b} }

// numberForm is how numbers are written, in expressions and in inputs: at most 15 digits, which float64 keeps exactly.
var numberForm = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

func parseNumber(s string) (float64, bool) {
	if !numberForm.MatchString(s) || len(strings.Trim(strings.Replace(s, ".", "", 1), "-")) > 15 {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && !math.IsInf(n, 0)
}

// Eval computes e over f. It never panics and always ends. The error says what stood in the way: e is not the text
// of a Spec, or a text was too long for a pattern.
func Eval(e Expr, f Facts) (bool, error) {
	if e == "" {
		return succeeded(f), nil
	}
	x, fault := parseExpr(string(e))
	if fault != nil {
		return false, fmt.Errorf("read the expression %s: %s", quoted(string(e)), fault.message)
	}
	v, err := x.eval(&f, 0)
	switch {
	case err != nil:
		return false, fmt.Errorf("compute the expression %s: %w", quoted(string(e)), err)
	case v.kind != kindBool:
		return false, fmt.Errorf("compute the expression %s: it gives %s, not true or false", quoted(string(e)), v.kind)
	}
	return v.truth && (x.asksStatus() || succeeded(f)), nil
}

func succeeded(f Facts) bool { return f.Before == Success || f.Before == "" }

// asksStatus tells whether e itself says what is to happen after a failure. Otherwise success() goes without saying.
func (e Expr) asksStatus() bool {
	x, fault := parseExpr(string(e))
	return fault == nil && x.asksStatus()
}

// decide is Eval as a decision.
func (e Expr) decide(f Facts) Decision {
	run, err := Eval(e, f)
	switch {
	case err != nil:
		return Decision{Why: clean(err.Error(), 300), Fault: true}
	case run:
		return Decision{Run: true}
	case e == "":
		return Decision{Why: "what came before it did not succeed"}
	}
	return Decision{Why: "its if does not hold: " + clean(string(e), 120)}
}

// Expand is t with every ${{ }} computed over f. What comes out is at most 256 bytes without control characters; the
// error says that it would not be, or that t is not the text of a Spec.
func (t Template) Expand(f Facts) (string, error) {
	parts, fault := splitTemplate(string(t))
	if fault != nil {
		return "", fmt.Errorf("read the template %s: %s", quoted(string(t)), fault.message)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.x == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := p.x.eval(&f, 0)
		if err != nil {
			return "", fmt.Errorf("compute the template %s: %w", quoted(string(t)), err)
		}
		b.WriteString(v.String())
	}
	out := b.String()
	if strings.TrimSpace(out) == "" || len(out) > groupBytes || hasControl(out) {
		return "", fmt.Errorf("the template %s comes to %s, which is not 1 to %d bytes of plain text", quoted(string(t)), quoted(out), groupBytes)
	}
	return out, nil
}

// String is v as a template shows it.
func (v value) String() string {
	switch v.kind {
	case kindNumber:
		return strconv.FormatFloat(v.number, 'f', -1, 64)
	case kindBool:
		return strconv.FormatBool(v.truth)
	}
	return v.text
}

// eval computes x. Parse bounded how deep x is and how many parts it has; the bound here is for an x that nobody checked.
func (x *expr) eval(f *Facts, depth int) (value, error) {
	if depth > exprNodes {
		return value{}, fmt.Errorf("it nests deeper than %d levels", exprNodes)
	}
	switch x.op {
	case opLiteral:
		return x.value, nil
	case opName:
		if nameFault(x, nil) != nil {
			return value{}, fmt.Errorf("there is no %s", quoted(strings.Join(x.name, ".")))
		}
		return f.lookup(x.name), nil
	case opCall:
		return x.call(f, depth)
	}
	args := make([]value, len(x.args))
	for i, a := range x.args {
		v, err := a.eval(f, depth+1)
		if err != nil {
			return value{}, err
		}
		args[i] = v
	}
	return apply(x.op, args)
}

// apply computes an operator. Values of types that it does not take are an error, which the checker tells before.
func apply(op string, args []value) (value, error) {
	bad := fmt.Errorf("%q cannot be used with %s", op, args[0].kind)
	want := func(k valueKind) bool {
		for _, a := range args {
			if a.kind != k {
				return false
			}
		}
		return true
	}
	same := func(a, b value) bool {
		return a.kind == b.kind && a.text == b.text && a.number == b.number && a.truth == b.truth
	}
	switch op {
	case "!":
		if want(kindBool) {
			return boolOf(!args[0].truth), nil
		}
	case "&&", "||":
		if want(kindBool) {
			// A chain holds when no part is false, or some part is true.
			return boolOf(slices.ContainsFunc(args, func(v value) bool { return v.truth == (op == "||") }) == (op == "||")), nil
		}
	case "==", "!=":
		if args[0].kind == args[1].kind {
			return boolOf(same(args[0], args[1]) == (op == "==")), nil
		}
	case "in":
		for _, a := range args[1:] {
			if same(args[0], a) {
				return boolOf(true), nil
			}
		}
		return boolOf(false), nil
	case "<", "<=", ">", ">=":
		if want(kindNumber) {
			a, b := args[0].number, args[1].number
			return boolOf(op == "<" && a < b || op == "<=" && a <= b || op == ">" && a > b || op == ">=" && a >= b), nil
		}
	}
	return value{}, bad
}

// call computes a function.
func (x *expr) call(f *Facts, depth int) (value, error) {
	switch x.name[0] {
	case "always":
		return boolOf(true), nil
	case "success":
		return boolOf(succeeded(*f)), nil
	case "failure":
		return boolOf(f.Before == Failure), nil
	case "cancelled":
		return boolOf(f.Before == Cancelled), nil
	}
	if len(x.args) != 2 {
		return value{}, fmt.Errorf("%s takes two texts", x.name[0])
	}
	var s [2]string
	for i, a := range x.args {
		v, err := a.eval(f, depth+1)
		if err != nil {
			return value{}, err
		}
		if v.kind != kindText {
			return value{}, fmt.Errorf("%s takes texts, this is %s", x.name[0], v.kind)
		}
		s[i] = v.text
	}
	switch x.name[0] {
	case "contains":
		return boolOf(strings.Contains(s[0], s[1])), nil
	case "startsWith":
		return boolOf(strings.HasPrefix(s[0], s[1])), nil
	case "endsWith":
		return boolOf(strings.HasSuffix(s[0], s[1])), nil
	case "matches":
		w := newWork()
		if len(s[0]) > matchBytes || len(s[1]) > groupBytes || !w.spend(s[1:], s[0]) {
			return value{}, fmt.Errorf("the text that is compared with the pattern %s is too long", quoted(s[1]))
		}
		return boolOf(doublestar.ValidatePattern(s[1]) && doublestar.MatchUnvalidated(s[1], s[0])), nil
	}
	return value{}, fmt.Errorf("there is no function %s", quoted(x.name[0]))
}
