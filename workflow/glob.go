package workflow

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxAlternatives bounds what the braces of one pattern spell out: the matcher tries every combination.
const maxAlternatives = 64

// globs reads patterns. One rule serves branches, tags and paths: * stops at a slash, ** between slashes
// does not, case counts, a leading dot is like any character, and "!" in front excludes.
func (d *decoder) globs(key string, at pos, v *node) []string {
	out := []string{}
	d.texts(key, at, v, d.lim.Patterns, func(n *node, s string) {
		d.patterns++
		pattern, _ := strings.CutPrefix(s, "!")
		switch {
		case d.patterns > d.lim.Patterns:
			if d.patterns == d.lim.Patterns+1 {
				d.err(n.at, codeLimit, "use fewer and wider patterns, such as src/**", "the file has more than the %d patterns allowed", d.lim.Patterns)
			}
		case len(s) > d.lim.PatternBytes:
			d.err(n.at, codeLimit, "shorten it", "a pattern of %s has %d bytes, more than the %d allowed", quoted(key), len(s), d.lim.PatternBytes)
		case pattern == "":
			d.err(n.at, codeGlob, "write a pattern after the !", "the pattern %s excludes nothing", quoted(s))
		case !doublestar.ValidatePattern(pattern):
			d.err(n.at, codeGlob, `close every [ and {, or write \[ for the character itself`, "the pattern %s cannot be read", quoted(s))
		case alternatives(pattern) > maxAlternatives:
			d.err(n.at, codeLimit, "write several patterns", "the braces of %s spell out more than %d patterns", quoted(s), maxAlternatives)
		default:
			d.pitfalls(key, n, pattern)
			out = append(out, s)
		}
	})
	return out
}

// pitfalls warns of patterns that do less than they seem to.
func (d *decoder) pitfalls(key string, n *node, pattern string) {
	switch {
	case strings.HasPrefix(pattern, "refs/"):
		short := strings.TrimPrefix(strings.TrimPrefix(pattern, "refs/heads/"), "refs/tags/")
		if key != "paths" && short != pattern {
			d.warn(n.at, warnNever, "write "+clean(short, 60), "%s is matched without refs/heads/ or refs/tags/ in front", quoted(key))
			d.mendText(n, pattern, short)
		}
	case key == "paths" && (strings.HasPrefix(pattern, "/") || strings.HasPrefix(pattern, "./")):
		d.warn(n.at, warnNever, "write "+clean(strings.TrimLeft(pattern, "./"), 60), "paths start at the top of the repository; %s never matches", quoted(pattern))
		d.mendText(n, pattern, strings.TrimLeft(pattern, "./"))
	case key == "paths" && strings.HasSuffix(pattern, "/"):
		d.warn(n.at, warnNever, "write "+clean(pattern, 60)+"**", "paths are files; %s never matches one", quoted(pattern))
		d.mendText(n, pattern, pattern+"**")
	case lonelyStars(pattern):
		d.warn(n.at, warnUnused, "put ** between slashes, such as **/*.md", "** inside a name is the same as * and stops at a slash, in %s", quoted(pattern))
	}
}

// mendText puts with in the place of old, which is the whole text of n or all of it but a ! in front.
func (d *decoder) mendText(n *node, old, with string) {
	if lead, ok := strings.CutSuffix(n.text, old); ok && (n.plain || !strings.ContainsAny(with, `\"'`)) {
		at := n.at
		if !n.plain {
			at.column++ // the quotes
		} else if strings.ContainsAny(with[:min(1, len(with))], "*!&") {
			return // it would need quotes
		}
		at.column += len(lead)
		d.mend(at, old, with)
	}
}

// lonelyStars tells whether a part of pattern mixes ** with other characters.
func lonelyStars(pattern string) bool {
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.Contains(part, "**") && strings.Trim(part, "*") != "" && !strings.ContainsAny(part, `{}\`) {
			return true
		}
	}
	return false
}

// alternatives is an upper bound of the patterns that the braces of pattern spell out.
func alternatives(pattern string) int {
	total := 1
	var open []int
	for i := 0; i < len(pattern) && total <= maxAlternatives; i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			open = append(open, 1)
		case ',':
			if n := len(open); n > 0 {
				open[n-1]++
			}
		case '}':
			if n := len(open); n > 0 {
				total *= open[n-1]
				open = open[:n-1]
			}
		}
	}
	return total
}

// work bounds what comparing may cost, in steps of the matcher. A push can bring thousands of files and a
// workflow a hundred patterns; past the bound the comparison counts as unknown.
type work struct{ left int }

// maxWork is a fraction of a second at worst, and enough for ten patterns of two stars and ten thousand files.
const maxWork = 50_000_000

func newWork() *work { return &work{maxWork} }

// spend tells whether comparing name with patterns is still affordable.
func (w *work) spend(patterns []string, name string) bool {
	for _, p := range patterns {
		if strings.ContainsAny(strings.TrimRight(p, "*"), "*{") {
			// Every star but the last may be tried again at every character of the name.
			w.left -= alternatives(p) * (len(p) + 1) * (len(name) + 1)
		} else {
			w.left -= len(p) + len(name) + 1
		}
	}
	return w.left >= 0
}

// covers tells whether patterns match name: one without "!" must (or there is none of these), and none with
// "!" may. An empty list matches nothing.
func covers(patterns []string, name string) bool {
	wanted, given := false, false
	for _, p := range patterns {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			if doublestar.MatchUnvalidated(not, name) {
				return false
			}
			continue
		}
		given = true
		wanted = wanted || doublestar.MatchUnvalidated(p, name)
	}
	return wanted || !given && len(patterns) > 0
}
