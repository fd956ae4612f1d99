package workflow

import (
	"regexp"
	"strings"
)

// asked is an expression or a template of the file that is yet to be checked.
type asked struct {
	key      string
	value    *node
	template bool
	// before tells whether the status of what came before can be asked for.
	before bool
}

// expression reads a condition. It is checked later, when all names are known.
func (d *decoder) expression(p pair, f Feature) Expr {
	d.use(f, p.at)
	if p.value.kind == scalar && p.value.text == "" {
		d.err(p.value.at, codeExpr, "write a condition such as success(), or remove the key", "the expression is empty")
		return ""
	}
	s, ok := d.text(p.key, p.at, p.value)
	if !ok {
		return ""
	}
	d.asked = append(d.asked, asked{key: p.key, value: p.value, before: true})
	return Expr(s)
}

// template reads text with ${{ }} in it.
func (d *decoder) template(p pair) Template {
	s := d.word(p.key, p.at, p.value, groupBytes)
	if s != "" {
		d.asked = append(d.asked, asked{key: p.key, value: p.value, template: true})
	}
	return Template(s)
}

// expressions checks what s has of expressions.
func (d *decoder) expressions(s *Spec) {
	sc := scope{inputs: s.Inputs, needs: s.Needs}
	if s.Matrix != nil {
		sc.axes = s.Matrix.keys()
	}
	for _, a := range d.asked {
		sc.before = a.before
		check := checkExpr
		if a.template {
			check = checkTemplate
		}
		if f := check(a.value.text, &sc); f != nil {
			at := d.placeIn(a.value, f.at)
			d.err(at, codeExpr, f.fix, "%s: %s", quoted(a.key), f.message)
			if f.replace != nil && at != a.value.at || f.replace != nil && f.at == 0 && a.value.plain {
				d.mend(at, a.value.text[f.at:f.end], *f.replace)
			}
		}
	}
}

// placeIn is the place of byte i of the text of v. Where the text is not in the file as it is, that is the place of v.
func (d *decoder) placeIn(v *node, i int) pos {
	from, ok := d.offset(v.at)
	if !ok || strings.Contains(v.text[:min(i, len(v.text))], "\n") {
		return v.at
	}
	at := v.at
	rest := string(d.src[from:min(len(d.src), from+len(v.text)+1)])
	if !v.plain {
		if rest == "" || rest[0] != '"' && rest[0] != '\'' {
			return v.at
		}
		rest = rest[1:]
		at.column++
	}
	if !strings.HasPrefix(rest, v.text) {
		return v.at
	}
	at.column += len([]rune(v.text[:min(i, len(v.text))]))
	return at
}

// foreignTemplate is ${{ }} around a name that people expect to be filled in.
var foreignTemplate = regexp.MustCompile(`\$\{\{\s*((?:ref|trigger|inputs|matrix|needs|env|secrets|vars|github|gitea|forgejo|steps|job|runner|strategy|hashFiles|format)\b[^}]{0,200})\}\}`)

// noTemplates refuses ${{ }} where nothing is filled in; it tells whether there is none. In a command a text that
// anybody can choose, such as the name of a branch, would become a part of the script and be run.
func (d *decoder) noTemplates(key string, v *node, text string, command bool) bool {
	m := foreignTemplate.FindStringSubmatchIndex(text)
	if m == nil {
		return true
	}
	whole, name := text[m[0]:m[1]], strings.TrimSpace(text[m[2]:m[3]])
	at := d.locate(v, m[0], whole)
	instead := variableFor(name)
	fix := "use a variable in the command instead"
	if instead != "" {
		fix = "use the variable " + instead + " in the command, in double quotes"
	}
	if !command {
		if strings.HasPrefix(name, "secrets.") && instead != "" {
			fix = "remove the line; the secret is the variable " + instead + " of the steps, once it is set"
		}
		d.err(at, codeTemplate, fix, "nothing is filled in to the value of %s: %s would stay as it is", quoted(key), quoted(whole))
		return false
	}
	d.err(at, codeTemplate, fix,
		"nothing is filled in to a command: what %s stands for could hold shell code, and would be run", quoted(whole))
	if instead != "" {
		d.mend(at, whole, "${"+strings.TrimPrefix(instead, "$")+"}")
	}
	return false
}

// locate is where part, which is byte i of the text of v, stands in the file. In a block of lines it is looked for
// below v.
func (d *decoder) locate(v *node, i int, part string) pos {
	if at := d.placeIn(v, i); at != v.at || i == 0 {
		return at
	}
	from, ok := d.offset(v.at)
	if !ok {
		return v.at
	}
	j := strings.Index(string(d.src[from:]), part)
	if j < 0 {
		return v.at
	}
	before := string(d.src[from : from+j])
	if n := strings.Count(before, "\n"); n > 0 {
		return pos{v.at.line + n, len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1}
	}
	return pos{v.at.line, v.at.column + len([]rune(before))}
}

// variableFor is the variable that has the value of name in a step, or "".
func variableFor(name string) string {
	first, rest, _ := strings.Cut(name, ".")
	switch {
	case rest != "" && !regexp.MustCompile(`^[A-Za-z0-9_.-]+$`).MatchString(rest):
		return ""
	case first == "matrix":
		return "$SPINDLE_MATRIX_" + upper(rest)
	case first == "inputs":
		return "$" + InputVariable(rest)
	case first == "secrets" || first == "env" || first == "vars":
		return "$" + rest
	case first == "needs":
		workflow, output, ok := strings.Cut(rest, ".outputs.")
		if ok {
			return "$" + NeedVariable(workflow, output)
		}
		return ""
	case first == "github" || first == "gitea" || first == "forgejo":
		name = githubName("." + rest)
	}
	switch name {
	case "ref", "trigger.ref":
		return "$TANGLED_REF"
	case "trigger.branch", "trigger.tag":
		return "$TANGLED_REF_NAME"
	case "trigger.sha":
		return "$TANGLED_SHA"
	case "trigger.event":
		return "$TANGLED_PIPELINE_KIND"
	case "trigger.pull.source_branch":
		return "$TANGLED_PR_SOURCE_BRANCH"
	case "trigger.pull.target_branch":
		return "$TANGLED_PR_TARGET_BRANCH"
	case "trigger.pull.action":
		return "$TANGLED_PR_ACTION"
	}
	return ""
}
