package workflow

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
	yamlv4 "go.yaml.in/yaml/v4"
)

// diagnose says what is wrong with src, which the library that reads good files has refused with cause. That one knows
// a line at best, so another library, which knows the place of every word, is asked as well; it is slower, and what
// it takes itself is refused all the same.
func diagnose(r *report, src []byte, lim Limits, cause error) {
	defer func() {
		if p := recover(); p != nil {
			r.err(pos{}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
		}
	}()
	tokens := tokenize(r, src, lim)
	if r.failed() {
		return
	}
	scanTokens(r, src, tokens, lim)
	if r.failed() {
		return
	}
	_, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var e yaml.Error
		if errors.As(err, &e) {
			syntax(r, src, e.GetToken(), e.GetMessage())
		} else {
			r.err(pos{}, codeYAML, "write the file in a simpler form", "the file cannot be read as YAML")
		}
		return
	}
	at := pos{}
	var load *libraryError
	if errors.As(cause, &load) {
		at = pos{max(load.Mark.Line, 1), max(load.Mark.Column, 1)}
	}
	r.err(at, codeYAML, "write it in a simpler form", "the file cannot be read as YAML: %s", clean(strings.TrimPrefix(cause.Error(), "yaml: "), 160))
}

// libraryError is what the library that reads good files says of others.
type libraryError = yamlv4.LoadError
