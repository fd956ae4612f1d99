package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"spindle/workflow"
)

func explainCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "say what the code of a diagnostic means, with a wrong and a right example",
		ArgsUsage: "[CODE]",
		Description: "spindle explain                lists the codes\n" +
			"spindle explain E-WF-KEY       explains one; `key` alone will do",
		Action: func(_ context.Context, c *cli.Command) error {
			switch c.Args().Len() {
			case 0:
				for _, e := range workflow.Explanations() {
					fmt.Fprintf(stdout, "%-14s %s\n", e.Code, e.Meaning)
				}
				return nil
			case 1:
				e, meant, ok := workflow.Explain(c.Args().First())
				if ok {
					explain(stdout, e)
					return nil
				}
				hint := "; spindle explain lists them"
				if meant != "" {
					hint = fmt.Sprintf("; did you mean %s?", meant)
				}
				return fail(exitUsage, fmt.Errorf("there is no code %q%s", clipped(c.Args().First()), hint))
			}
			return fail(exitUsage, fmt.Errorf("explain takes one code, got %d", c.Args().Len()))
		},
	}
}

// clipped is s, shortened for a message.
func clipped(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// explain prints e with its two examples.
func explain(out io.Writer, e workflow.Explanation) {
	fmt.Fprintf(out, "%s: %s\n\n%s\n", e.Code, e.Meaning, wrapped(e.Why, 78))
	for _, x := range []struct {
		title   string
		example workflow.Example
	}{{"wrong", e.Wrong}, {"right", e.Right}} {
		about := workflow.Dir + x.example.Name()
		if x.example.Only != "" {
			about += ", started by hand as " + x.example.Only
		}
		fmt.Fprintf(out, "\n%s: %s\n\n", x.title, about)
		for line := range strings.Lines(x.example.String()) {
			fmt.Fprintf(out, "    %s", line)
		}
	}
	fmt.Fprintln(out)
}

// wrapped breaks text between words into lines of at most width characters.
func wrapped(text string, width int) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case at == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
