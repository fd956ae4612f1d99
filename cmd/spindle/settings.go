package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"
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

// misread says in the operator's words which setting could not be read: the library names the field, which only
// who reads the code knows.
func misread(err error) error {
	field, why, ok := strings.Cut(err.Error(), ": ")
	f, known := reflect.TypeFor[config]().FieldByName(field)
	if !ok || !known {
		return err
	}
	name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
	want := "a text"
	switch f.Type {
	case reflect.TypeFor[int]():
		want = "a whole number"
	case reflect.TypeFor[bool]():
		want = "true or false"
	case reflect.TypeFor[time.Duration]():
		want = "a duration such as 90s, 5m or 1h"
	}
	return fmt.Errorf("%s must be %s: %s", name, want, why)
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
