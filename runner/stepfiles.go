package runner

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"spindle/engines"
	"spindle/workflow"
)

// The variables that name the files by which a step tells of something.
const (
	envFile     = "SPINDLE_ENV"     // NAME=value: variables of the steps after it
	pathFile    = "SPINDLE_PATH"    // a folder on a line: where the steps after it look for programs first
	outputFile  = "SPINDLE_OUTPUT"  // NAME=value: what workflows that need this one are told
	summaryFile = "SPINDLE_SUMMARY" // Markdown for the page of the run
)

func stepFiles() []string { return []string{envFile, pathFile, outputFile, summaryFile} }

// Bounds of what the steps of an attempt may tell.
const (
	maxVariables = 500
	maxValue     = 120 << 10 // of one variable, in bytes: an argument of a process may have 128 KiB
	maxTold      = 512 << 10 // of all variables, in bytes; the same for outputs
	maxFolders   = 100
	maxSummary   = 1 << 20 // of the summary, in bytes
	maxName      = 200
)

// told is what the steps of an attempt have told so far.
type told struct {
	env     []workflow.Env
	path    []string // the newest first
	outputs []workflow.Env
	summary strings.Builder
}

// refusal is an error of the job: its step fails with the sentence.
type refusal struct{ sentence string }

func (r *refusal) Error() string { return r.sentence }

// take takes what a step wrote. Nothing of a file that is refused counts. hide masks what is kept beside the log; say
// tells the reader of the log what does not fail the step.
func (t *told) take(files map[string][]byte, hide func(string) string, say func(string)) error {
	for _, name := range stepFiles() {
		if b := files[name]; len(b) > engines.FileBytes {
			return &refusal{fmt.Sprintf("what the step wrote to $%s is larger than %d KiB", name, engines.FileBytes>>10)}
		} else if slices.Contains(b, 0) {
			return &refusal{fmt.Sprintf("what the step wrote to $%s holds a zero byte, which no variable can", name)}
		}
	}
	env, err := assignments(envFile, files[envFile])
	if err != nil {
		return err
	}
	for _, e := range env {
		if why := protected(e.Key); why != "" {
			return &refusal{fmt.Sprintf("the step may not set %s through $%s: %s", e.Key, envFile, why)}
		}
	}
	outputs, err := assignments(outputFile, files[outputFile])
	if err != nil {
		return err
	}
	folders, err := folders(files[pathFile])
	if err != nil {
		return err
	}
	if t.env, err = add(envFile, t.env, env); err != nil {
		return err
	}
	for _, o := range outputs {
		if hide(o.Value) != o.Value {
			say(fmt.Sprintf("the output %s holds a secret, so it is not handed on", o.Key))
			continue
		}
		if t.outputs, err = add(outputFile, t.outputs, []workflow.Env{o}); err != nil {
			return err
		}
	}
	for _, f := range folders {
		t.path = slices.Insert(slices.DeleteFunc(t.path, func(o string) bool { return o == f }), 0, f)
	}
	if len(t.path) > maxFolders {
		return &refusal{fmt.Sprintf("the steps put more than %d folders into $%s", maxFolders, pathFile)}
	}
	t.summarize(string(files[summaryFile]), hide, say)
	return nil
}

// summarize adds Markdown, as far as there is room.
func (t *told) summarize(text string, hide func(string) string, say func(string)) {
	if text == "" {
		return
	}
	text = hide(strings.ToValidUTF8(text, "\uFFFD"))
	if room := maxSummary - t.summary.Len(); len(text) > room {
		for room > 0 && !utf8.RuneStart(text[room]) {
			room--
		}
		text = text[:max(room, 0)]
		say(fmt.Sprintf("the summary of a run may have %d KiB; what is beyond that is cut off", maxSummary>>10))
	}
	t.summary.WriteString(text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.summary.WriteByte('\n')
	}
}

// variable is a name that an environment can hold.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// assignments reads lines of NAME=value, and NAME<<WORD up to a line that is WORD. A carriage return at the end of a
// line belongs to the line's end; one inside stays. A line break comes into a value by the second form alone, so a value
// that holds one cannot make another variable out of its rest.
func assignments(file string, b []byte) ([]workflow.Env, error) {
	var out []workflow.Env
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line, at := lines[i], i+1
		if strings.TrimSpace(line) == "" {
			continue
		}
		bad := func(what, fix string) error {
			return &refusal{fmt.Sprintf("$%s, line %d: %s; %s", file, at, what, fix)}
		}
		eq, here := strings.IndexByte(line, '='), strings.Index(line, "<<")
		var e workflow.Env
		switch {
		case here >= 0 && (eq < 0 || here < eq):
			word := line[here+2:]
			if strings.TrimSpace(word) == "" {
				return nil, bad("there is no word after <<", "write NAME<<EOF, the value, and a line EOF")
			}
			end := slices.Index(lines[i+1:], word)
			if end < 0 {
				return nil, bad(fmt.Sprintf("the line %q that ends the value is missing", clip(word)), "write it alone on a line")
			}
			e = workflow.Env{Key: line[:here], Value: strings.Join(lines[i+1:i+1+end], "\n")}
			i += 1 + end
		case eq >= 0:
			e = workflow.Env{Key: line[:eq], Value: line[eq+1:]}
		default:
			return nil, bad("this is no assignment", "write NAME=value, or NAME<<EOF for a value of several lines")
		}
		if !variable().MatchString(e.Key) || len(e.Key) > maxName {
			return nil, bad(fmt.Sprintf("%q cannot name a variable", clip(e.Key)), "use letters, digits and _ only, not starting with a digit")
		}
		if len(e.Value) > maxValue {
			return nil, bad(fmt.Sprintf("the value of %s is larger than %d KiB", e.Key, maxValue>>10), "write it to a file of the workspace")
		}
		out = append(out, e)
	}
	return out, nil
}

// add lays more over list, within the bounds.
func add(file string, list, more []workflow.Env) ([]workflow.Env, error) {
	for _, e := range more {
		if i := slices.IndexFunc(list, func(o workflow.Env) bool { return o.Key == e.Key }); i >= 0 {
			list[i] = e
		} else {
			list = append(list, e)
		}
	}
	size := 0
	for _, e := range list {
		size += len(e.Key) + len(e.Value)
	}
	if len(list) > maxVariables || size > maxTold {
		return list, &refusal{fmt.Sprintf("the steps wrote more to $%s than the %d variables and %d KiB that are kept", file, maxVariables, maxTold>>10)}
	}
	return list, nil
}

// folders reads $SPINDLE_PATH.
func folders(b []byte) ([]string, error) {
	var out []string
	i := 0
	for line := range strings.Lines(string(b)) {
		i++
		f := strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(f) == "" {
			continue
		}
		if !path.IsAbs(f) || strings.ContainsRune(f, ':') || path.Clean(f) == "/" || len(f) > 4096 {
			return nil, &refusal{fmt.Sprintf("$%s, line %d: %q is not the path of a folder; write one from / on, without a colon", pathFile, i, clip(f))}
		}
		out = append(out, path.Clean(f))
	}
	return out, nil
}

// protected says why a step may not set that variable for others, or "". Those are the names that the server sets, and
// those by which programs that come later could be made to run something else unseen.
func protected(name string) string {
	switch {
	case strings.HasPrefix(name, "TANGLED_"), strings.HasPrefix(name, "SPINDLE_"), name == "CI", name == "HOME":
		return "the server sets it"
	case name == "PATH":
		return "write folders to $" + pathFile
	case strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "DYLD_"), strings.HasPrefix(name, "BASH_FUNC_"),
		slices.Contains([]string{"BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"}, name):
		return "it makes the programs of later steps load other code; set it in the step that needs it"
	}
	return ""
}

// clip bounds what is quoted of a job's text.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
