package workflow

import (
	"bytes"
	"slices"
	"strings"
)

// Apply carries out the edits of ds on src, the file as it is on disk, and returns what comes out and how many of ds
// were mended. Edits of a diagnostic that meet those of one before it are left for the next time.
func Apply(src []byte, ds []Diagnostic) (out []byte, mended int) {
	var all []Edit
	for _, d := range ds {
		if len(d.Edits) == 0 || slices.ContainsFunc(d.Edits, func(e Edit) bool { return e.Start < 0 || e.End < e.Start || e.End > len(src) || meets(e, all) }) {
			continue
		}
		all = append(all, d.Edits...)
		mended++
	}
	slices.SortStableFunc(all, func(a, b Edit) int { return a.Start - b.Start })
	at := 0
	for _, e := range all {
		out = append(append(out, src[at:e.Start]...), e.Text...)
		at = e.End
	}
	return append(out, src[at:]...), mended
}

// meets tells whether e touches what one of all changes.
func meets(e Edit, all []Edit) bool {
	return slices.ContainsFunc(all, func(x Edit) bool { return e.Start <= x.End && x.Start <= e.End })
}

// quote gives the newest diagnostic an edit that puts the value at at in quotes: up to the end of its line, or inside
// of brackets up to the comma or the bracket that ends it.
func (r *report) quote(at pos) {
	if !r.open {
		return
	}
	from, ok := r.offset(at)
	if !ok {
		return
	}
	start := bytes.LastIndexByte(r.src[:from], '\n') + 1
	before := string(r.src[start:from])
	rest, _, _ := strings.Cut(string(r.src[from:]), "\n")
	rest, _, _ = strings.Cut(rest, " #")
	if strings.Count(before, "[")+strings.Count(before, "{") > strings.Count(before, "]")+strings.Count(before, "}") {
		if i := strings.IndexAny(rest, ",]}"); i >= 0 {
			rest = rest[:i]
		}
	}
	rest = strings.TrimRight(rest, " \t\r")
	if rest != "" && !strings.ContainsAny(rest, `"\`) {
		r.edit(Edit{Start: from, End: from + len(rest), Text: `"` + rest + `"`})
	}
}

// mendTabsBytes is how large a file may be whose tabs are mended: it is read again for each width.
const mendTabsBytes = 32 << 10

// mendTabs gives diagnostics of tabs the edits that put spaces in their place, where one width of a tab makes YAML of
// the file. Nobody can say how wide the author's tabs are, but what does not line up is no YAML.
func (r *report) mendTabs(lim Limits) {
	if len(r.src) > mendTabsBytes || !slices.ContainsFunc(r.found, func(d Diagnostic) bool { return d.Code == codeTab }) ||
		slices.ContainsFunc(r.found, func(d Diagnostic) bool { return d.Code != codeTab }) {
		return
	}
	for _, width := range []int{2, 4, 8} {
		ds := slices.Clone(r.found)
		for i, d := range ds {
			start, ok := r.offset(pos{d.Line, 1})
			if !ok {
				return
			}
			end := start
			for end < len(r.src) && (r.src[end] == ' ' || r.src[end] == '\t') {
				end++
			}
			lead := strings.ReplaceAll(string(r.src[start:end]), "\t", strings.Repeat(" ", width))
			ds[i].Edits = []Edit{{Start: start, End: end, Text: lead}}
		}
		text, _ := Apply(r.src, ds)
		again := &report{limit: 1, src: text}
		if readTree(again, text, lim) != nil {
			r.found = ds
			return
		}
	}
}
