package workflow

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func (d *decoder) steps(key string, at pos, v *node) []Step {
	switch v.kind {
	case scalar:
		d.err(v.at, codeType, stepFix(v.text, "steps: [", "]"), `"steps" must be a list of steps, this is %s`, v)
		d.wrap(v, "["+stepOf(v.text)+"]", nil)
		return nil
	case mapping:
		d.err(v.at, codeType, "start every step with a dash"+firstKey(v), `"steps" must be a list of steps, this is a mapping`)
		return nil
	}
	items := d.sequence(key, at, v, d.lim.Steps)
	if v.kind == sequence && len(v.items) == 0 {
		d.err(v.at, codeRequired, `add one: steps: [{name: test, command: "make test"}]`, `"steps" is empty`)
	}
	out := make([]Step, 0, len(items))
	for i, n := range items {
		out = append(out, d.step(fmt.Sprintf("step %d", i+1), n))
	}
	return out
}

// bareNumeral is a scalar that is a number and so surely no command.
var bareNumeral = regexp.MustCompile(`^[-+]?[0-9][0-9_.eE+-]*$`)

func (d *decoder) step(where string, n *node) Step {
	var s Step
	if n.kind == scalar {
		d.err(n.at, codeType, stepFix(n.text, "", ""), "%s must be a mapping of keys, this is %s", where, n)
		d.wrap(n, stepOf(n.text), nil)
		return s
	}
	d.object(n, where, stepKeys(), func(p pair) {
		switch p.key {
		case "name":
			s.Name = d.word(p.key, p.at, p.value, nameLimit)
		case "command":
			s.Command = d.command(where, p)
		case "environment":
			s.Environment = d.environment(p.key, p.at, p.value)
		case "timeout":
			d.duration(p.key, p.at, p.value, &s.Timeout)
		case "if":
			s.If = d.expression(p, FeatureStepIf)
		case "secrets":
			s.Secrets = d.secrets(p)
		case "continue_on_error":
			d.use(FeatureContinueOnError, p.at)
			d.bool(p.key, p.at, p.value, &s.ContinueOnError)
		case "shell":
			s.Shell = d.shell(p)
		case "working_directory":
			s.WorkingDirectory = d.folder(p)
		}
	})
	if s.Name == "" {
		s.Name = firstLine(s.Command)
	}
	return s
}

// command reads what the shell runs.
func (d *decoder) command(where string, p pair) string {
	if p.value.kind == sequence {
		d.err(p.value.at, codeType, "write command: | and every command on a line of its own below it, without the dashes",
			"the command of %s must be text, this is a list", where)
		return ""
	}
	text, ok := d.text(p.key, p.at, p.value)
	switch v := p.value; {
	case !ok:
	case v.plain && bareNumeral.MatchString(text):
		d.err(v.at, codeType, fmt.Sprintf("command: %q", text), "the command of %s must be text, this is the number %s", where, clean(text, 40))
		d.mend(v.at, text, `"`+text+`"`)
	case strings.TrimSpace(text) == "":
		d.err(v.at, codeValue, "write a command, or remove the step", "the command of %s is empty", where)
	default:
		d.noTemplates(p.key, v, text, true)
	}
	return text
}

// shellName is a program that is called without arguments.
var shellName = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

func (d *decoder) shell(p pair) string {
	d.use(FeatureShell, p.at)
	s := d.word(p.key, p.at, p.value, nameLimit)
	if s != "" && !shellName.MatchString(s) {
		d.err(p.value.at, codeValue, "write the program alone, such as bash", "%s is the program that the command is handed to, this is %s", quoted(p.key), quoted(s))
		return ""
	}
	return s
}

func (d *decoder) folder(p pair) string {
	d.use(FeatureWorkingDirectory, p.at)
	s := d.word(p.key, p.at, p.value, textLimit)
	switch {
	case slices.Contains(strings.Split(s, "/"), ".."):
		d.err(p.value.at, codeValue, "write the path without ..", "the path %s climbs out of its folder", quoted(s))
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~"):
		d.err(p.value.at, codeValue, "write a path inside the repository, and cd in the command for others", "%s is a folder of the repository, this is %s", quoted(p.key), quoted(s))
	default:
		return s
	}
	return ""
}

// firstLine is what stands for a command that has no name.
func firstLine(command string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(command), "\n")
	return clean(strings.TrimSpace(line), 60)
}

// variable is what a shell can name.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *decoder) environment(key string, at pos, v *node) []Env {
	switch {
	case v.kind == null:
		d.err(at, codeType, "remove the key, or write NAME: value under it", "%s has no value", quoted(key))
		return nil
	case v.kind != mapping:
		d.err(v.at, codeType, "write environment: {NAME: value}", "%s must be a mapping of names to values, this is %s", quoted(key), v)
		return nil
	case len(v.pairs) > d.lim.Environment:
		d.err(v.at, codeLimit, "use fewer variables", "%s has %d variables, more than the %d allowed", quoted(key), len(v.pairs), d.lim.Environment)
		return nil
	}
	out := make([]Env, 0, len(v.pairs))
	for _, p := range v.pairs {
		if !variable.MatchString(p.key) || len(p.key) > variableLimit {
			d.err(p.at, codeEnv, "use letters, digits and _ only, not starting with a digit", "%s cannot name a variable", quoted(p.key))
			continue
		}
		value, ok := d.value(p)
		if !ok {
			continue
		}
		if strings.HasPrefix(p.key, "TANGLED_") || strings.HasPrefix(p.key, "SPINDLE_") || p.key == "CI" {
			d.warn(p.at, warnReserved, "use another name", "%s is set by the server, this value is not used", p.key)
		}
		out = append(out, Env{p.key, value})
	}
	return out
}

// value reads one variable, as the text that is in the file.
func (d *decoder) value(p pair) (string, bool) {
	switch p.value.kind {
	case scalar:
		text, ok := d.text(p.key, p.at, p.value)
		return text, ok && d.noTemplates(p.key, p.value, text, false)
	case null:
		d.err(p.at, codeEnv, fmt.Sprintf(`write %s: "" for an empty value`, p.key), "the variable %s has no value", p.key)
		if p.value.text == "" { // no ~ and no null
			d.mend(p.at, p.key+":", p.key+`: ""`)
		}
	default:
		d.err(p.value.at, codeEnv, "write one text, in quotes if it holds brackets", "the variable %s must be text, this is %s", p.key, p.value)
	}
	return "", false
}
