package workflow

import (
	"regexp"
	"slices"
	"strings"

	"spindle/pipeline"
)

// elsewhere tells what to write for a key of another system that has no key of ours in its place: which key of known it
// stands for, if any, a clause for the message, and the fix. The fix is empty where p is no such key.
func elsewhere(p pair, known []string) (meant, says, fix string) {
	step := slices.Contains(known, "command")
	switch key := strings.ToLower(p.key); {
	case key == "uses" && step && strings.Contains(p.value.text, "checkout"):
		return "command", "the repository is fetched before the first step", "remove the step; clone: says how the repository is fetched"
	case key == "uses" && step:
		return "command", "there are no actions, a step is a command", "write command: with what the action would do; tools come from image: or dependencies: of the workflow"
	case key == "with" && step:
		return "", "there are no actions to hand values to", "remove it; a command reads variables: environment: {NAME: value}"
	case (key == "image" || key == "container") && step:
		return "", "all steps of a workflow run in one image", "write image: above steps:, and a workflow of its own for what needs another image"
	case key == "permissions":
		return "", "there is no token of the repository to limit", "remove it; secrets: says which secrets the steps get"
	case key == "defaults":
		return "", "nothing is set for all steps", "remove it; write shell: and working_directory: into the steps"
	case key == "runs-on" && hosted(p.value):
		return "runs_on", "machines are chosen by the labels of runners, and " + quoted(p.value.text) + " is none", "remove it; image: says what the steps run in, such as image: docker.io/library/ubuntu:24.04"
	}
	if ours, ok := strings.CutSuffix(strings.ToLower(p.key), "-ignore"); ok {
		ours = strings.TrimSuffix(strings.TrimSuffix(ours, "es"), "s") // branches, tags
		if ours == "path" {
			ours = "paths"
		}
		if slices.Contains(known, ours) {
			return ours, "a pattern with ! in front excludes", "write " + ours + ": " + excluded(p.value)
		}
	}
	return "", "", ""
}

// plainPath is a path that a shell takes for what it is.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._/-]*$`)

// typed is file as people can type it after a command. Others choose its name, so that it may hold a command of its own.
func typed(file string) string {
	if plainPath.MatchString(file) {
		return file
	}
	return "FILE"
}

// hosted tells whether v is a machine of a service that lends them.
func hosted(v *node) bool {
	for _, system := range []string{"ubuntu-", "macos-", "windows-"} {
		if strings.HasPrefix(v.text, system) {
			return true
		}
	}
	return false
}

// excluded is v, patterns that must not match, as patterns of ours.
func excluded(v *node) string {
	items := v.items
	if v.kind == scalar {
		items = []*node{v}
	}
	var out []string
	for _, n := range items {
		if n.kind != scalar || len(out) == 3 || len(n.text) > 40 {
			return `["!pattern"]`
		}
		out = append(out, quoted("!"+n.text))
	}
	if out == nil {
		return `["!pattern"]`
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// conditionOf is a condition for people who wrote event alone.
func conditionOf(event string) string {
	switch {
	case event == string(pipeline.Manual):
		return "{event: manual}"
	case event == string(pipeline.Schedule):
		return `{event: schedule, schedule: [{cron: "H 2 * * *"}]}`
	case slices.Contains(events(), event):
		return "{event: " + event + `, branch: ["**"]}`
	}
	return `{event: push, branch: ["**"]}`
}

// stepFix says how the step of such people is written, between before and after.
func stepFix(command, before, after string) string {
	if command != firstLine(command) { // too long to show
		return "start every step with - command: and put the text in quotes, or below it after a |"
	}
	return "write " + before + stepOf(command) + after
}

// stepOf is a step for people who wrote its command alone.
func stepOf(command string) string {
	command = firstLine(command)
	if strings.ContainsAny(command, `"\\`) {
		return "{command: '" + strings.ReplaceAll(command, "'", "''") + "'}"
	}
	return `{command: "` + command + `"}`
}

// wrap puts with in the place of v, which is a short text as it is in the file and one of known, if there are any.
func (d *decoder) wrap(v *node, with string, known []string) {
	if v.plain && v.text == firstLine(v.text) && (known == nil || slices.Contains(known, v.text)) {
		d.mend(v.at, v.text, with)
	}
}

// firstKey shows where the dash goes that v has none of.
func firstKey(v *node) string {
	if len(v.pairs) == 0 || v.pairs[0].value.kind != scalar {
		return ""
	}
	p := v.pairs[0]
	return ": - " + clean(p.key, 40) + ": " + firstLine(p.value.text)
}

// colonLine is a line whose value is text without quotes in which a colon stands.
var colonLine = regexp.MustCompile("^( *(?:- +)*[A-Za-z_][A-Za-z0-9_-]*): +([^'\"|>\\[\\]{}&*!%@`#\\s].*:(?: .*|))$")

// colonInText tells, and reports, whether the text that begins at at holds a colon that YAML takes for the end of a key.
func colonInText(r *report, src []byte, at pos) bool {
	lines := strings.Split(string(src), "\n")
	if at.line > len(lines) {
		return false
	}
	line := strings.TrimRight(lines[at.line-1], " \t\r")
	m := colonLine.FindStringSubmatchIndex(line)
	if m == nil || len([]rune(line[:m[4]])) != at.column-1 || strings.Contains(line, " #") {
		return false
	}
	key, text := strings.TrimLeft(line[m[2]:m[3]], " -"), line[m[4]:m[5]]
	const says = "the text holds a colon, which YAML takes for the end of a key"
	var safe string
	switch {
	case !strings.ContainsAny(text, `"\`):
		safe = `"` + text + `"`
	case !strings.Contains(text, "'"):
		safe = "'" + text + "'"
	default:
		r.err(at, codeYAML, "write "+key+": | and the text on the next line, indented by two spaces more", says)
		return true
	}
	r.err(at, codeYAML, "put it in quotes: "+key+": "+clean(safe, 120), says)
	r.mend(at, text, safe)
	return true
}
