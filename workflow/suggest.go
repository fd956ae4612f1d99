package workflow

import (
	"slices"
	"strings"
)

// nearest is the word of words that s was probably meant to be, or "".
func nearest(s string, words []string) string {
	if s == "" || len(s) > 64 {
		return ""
	}
	best, bestAt := "", 1+max(1, len([]rune(s))/3)
	for _, w := range words {
		d := distance(strings.ToLower(s), strings.ToLower(w))
		if d > 1 && len(s) >= 3 && strings.HasPrefix(w, s) {
			d = 1 // a beginning counts as a slip
		}
		if d < bestAt {
			best, bestAt = w, d
		}
	}
	return best
}

// nearestAlone is nearest, and whether no other word is as near, so that the word can be put in its place.
func nearestAlone(s string, words []string) (string, bool) {
	best := nearest(s, words)
	if best == "" {
		return "", false
	}
	near := distance(strings.ToLower(s), strings.ToLower(best))
	for _, w := range words {
		if w != best && distance(strings.ToLower(s), strings.ToLower(w)) <= near {
			return best, false
		}
	}
	return best, true
}

// didYouMean is a clause for the end of a message, or "".
func didYouMean(s string, words []string) string {
	if w := nearest(s, words); w != "" {
		return "; did you mean " + quoted(w) + "?"
	}
	return ""
}

// distance is how many insertions, deletions, replacements and swaps of neighbours turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}

// list is words for a sentence: sorted, with commas.
func list(words []string) string {
	return strings.Join(slices.Sorted(slices.Values(words)), ", ")
}
