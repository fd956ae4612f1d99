package main

import (
	"reflect"
	"strings"
)

// settings lists the names that config reads.
func settings() []string {
	var out []string
	t := reflect.TypeFor[config]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("env"), ",")
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// nearest is the known name with the least edit distance to name.
func nearest(name string, known []string) string {
	best, at := "", int(^uint(0)>>1)
	for _, k := range known {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diag+cost)
			diag, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
