package workflow

import "strings"

// maxMessage is how much of a commit message is looked at.
const maxMessage = 64 << 10

// SkipMarker tells whether a push asks not to be run, and with which words: a push option skip-ci or
// ci-skip, or a marker in the newest commit's message that does not stand in code (backticks or fences).
func SkipMarker(options []string, commitMessage string) (marker string, skip bool) {
	for _, o := range options {
		if o := strings.ToLower(strings.TrimSpace(o)); o == "skip-ci" || o == "ci-skip" {
			return o, true
		}
	}
	if len(commitMessage) > maxMessage {
		commitMessage = commitMessage[:maxMessage]
	}
	text := strings.ToLower(outsideCode(commitMessage))
	for _, m := range []string{"[skip ci]", "[ci skip]", "[skip spindle]"} {
		if strings.Contains(text, m) {
			return m, true
		}
	}
	return "", false
}

// outsideCode is message without fenced blocks and code spans, as Markdown reads them.
func outsideCode(message string) string {
	var b strings.Builder
	fence := ""
	var paragraph strings.Builder
	flush := func() {
		b.WriteString(withoutSpans(paragraph.String()))
		paragraph.Reset()
	}
	for line := range strings.Lines(message) {
		mark := fenceMark(line)
		switch {
		case fence != "":
			if strings.HasPrefix(mark, fence) && strings.TrimSpace(line) == mark {
				fence = ""
			}
		case mark != "":
			flush()
			b.WriteByte('\n')
			fence = mark
		case strings.TrimSpace(line) == "":
			flush()
			b.WriteByte('\n')
		default:
			paragraph.WriteString(line)
		}
	}
	flush()
	return b.String()
}

// fenceMark is the run of backticks or tildes that opens or closes a fenced block on line, or "".
func fenceMark(line string) string {
	text := strings.TrimLeft(line, " ")
	if len(line)-len(text) > 3 {
		return ""
	}
	for _, c := range []string{"`", "~"} {
		run := text[:len(text)-len(strings.TrimLeft(text, c))]
		// A line such as ```x``` is a code span and opens nothing.
		if len(run) >= 3 && (c == "~" || !strings.Contains(text[len(run):], c)) {
			return run
		}
	}
	return ""
}

// withoutSpans is text without its code spans: what stands between two runs of equally many backticks.
func withoutSpans(text string) string {
	type run struct{ at, n int }
	var runs []run
	for i := 0; i < len(text); i++ {
		if text[i] != '`' {
			continue
		}
		n := len(text[i:]) - len(strings.TrimLeft(text[i:], "`"))
		runs = append(runs, run{i, n})
		i += n - 1
	}
	// next[i] is the index of the following run that is as long as run i, or 0.
	next := make([]int, len(runs))
	last := map[int]int{}
	for i := len(runs) - 1; i >= 0; i-- {
		next[i] = last[runs[i].n]
		last[runs[i].n] = i
	}
	var b strings.Builder
	from := 0
	for i := 0; i < len(runs); i++ {
		if next[i] == 0 {
			continue
		}
		b.WriteString(text[from:runs[i].at])
		b.WriteByte('`')
		i = next[i]
		from = runs[i].at + runs[i].n
	}
	b.WriteString(text[from:])
	return b.String()
}
