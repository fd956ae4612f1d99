package dummy

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"spindle/engines"
	"spindle/internal/clock"
)

// shell interprets one script; see the package documentation for its language.
type shell struct {
	clock    clock.Clock
	env      []string
	files    map[string][]byte // what put wrote, by the name of the variable
	names    []string          // of the files that there are
	out, err io.Writer
}

// run returns the exit code; an error is one of the writers', or the context's.
func (s shell) run(ctx context.Context, script string) (int, error) {
	code := 0
	for line := range strings.SplitSeq(script, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		skip := false // the rest of a chain whose last command failed
		for _, cmd := range split(line) {
			if err := ctx.Err(); err != nil {
				return -1, err
			}
			if len(cmd.words) == 0 || skip && cmd.and {
				continue
			}
			skip = false
			n, exit, err := s.command(ctx, cmd.words)
			if err != nil || exit {
				return n, err
			}
			code, skip = n, n != 0
		}
	}
	return code, nil
}

// command runs one command and says whether it ends the script.
func (s shell) command(ctx context.Context, words []string) (code int, exit bool, err error) {
	out := s.out
	if words[len(words)-1] == ">&2" {
		out, words = s.err, words[:len(words)-1]
	}
	name, args := "", []string(nil)
	if len(words) > 0 {
		name, args = words[0], words[1:]
	}
	switch name {
	case "echo":
		return 0, false, print(out, strings.Join(args, " "))
	case "put":
		if len(args) == 0 || !slices.Contains(s.names, args[0]) {
			return 1, false, print(s.err, "put: no such file")
		}
		if line := strings.Join(args[1:], " ") + "\n"; len(s.files[args[0]])+len(line) <= engines.FileBytes+1 {
			s.files[args[0]] = append(s.files[args[0]], line...)
		}
		return 0, false, nil
	case "true", "":
		return 0, false, nil
	case "false":
		return 1, false, nil
	case "now":
		return 0, false, print(out, strconv.FormatInt(s.clock.Now().UnixNano(), 10))
	case "printenv":
		if v, ok := s.lookup(args); ok {
			return 0, false, print(out, v)
		}
		return 1, false, nil
	case "sleep":
		d, ok := seconds(args)
		if !ok {
			return 1, false, print(s.err, "sleep: give seconds, such as 0.5")
		}
		return 0, false, s.clock.Sleep(ctx, d)
	case "exit":
		n, ok := 0, len(args) == 0
		if !ok {
			n, err = strconv.Atoi(args[0])
			ok = err == nil
		}
		if !ok {
			return 2, true, print(s.err, "exit: give a number")
		}
		return n & 0xff, true, nil
	}
	return 127, false, print(s.err, name+": command not found")
}

// lookup finds the last value of a variable, which is the one that counts.
func (s shell) lookup(args []string) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	for i := len(s.env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(s.env[i], args[0]+"="); ok {
			return v, true
		}
	}
	return "", false
}

func seconds(args []string) (time.Duration, bool) {
	if len(args) != 1 {
		return 0, false
	}
	f, err := strconv.ParseFloat(args[0], 64)
	if err != nil || f < 0 || f > 1e6 {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}

func print(w io.Writer, line string) error {
	if w == nil {
		return nil
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// simple is one command of a line; and says that it was joined to the one before by &&.
type simple struct {
	words []string
	and   bool
}

// split cuts a line into commands and words.
func split(line string) []simple {
	cmds := []simple{{}}
	last := func() *simple { return &cmds[len(cmds)-1] }
	var word strings.Builder
	var quote byte
	inWord := false
	flush := func() {
		if inWord {
			last().words = append(last().words, word.String())
			word.Reset()
			inWord = false
		}
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			flush()
		case c == ';':
			flush()
			cmds = append(cmds, simple{})
		case strings.HasPrefix(line[i:], "&&"):
			flush()
			cmds = append(cmds, simple{and: true})
			i++
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	flush()
	return cmds
}
