package ingest

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	commitPattern = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
	inputPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
)

// Bounds on what a call may carry.
const (
	maxInputs     = 50
	maxInputValue = 4096
	maxOnly       = 100
	maxOptions    = 50
	maxOption     = 1024
	maxRef        = 512
	maxName       = 256
	maxKey        = 256
)

func commitName(s string) bool { return commitPattern.MatchString(s) }

func checkPush(c PushCall) error {
	if err := checkRef(c.Ref); err != nil {
		return err
	}
	if !commitName(c.New) || (c.Old != "" && !commitName(c.Old)) {
		return fmt.Errorf("%w: oldSha and newSha must be full object names", ErrInput)
	}
	if zero(c.Old) && zero(c.New) {
		return fmt.Errorf("%w: a ref that did not exist and does not exist has not moved", ErrInput)
	}
	if len(c.Options) > maxOptions {
		return fmt.Errorf("%w: more than %d push options", ErrInput, maxOptions)
	}
	for _, o := range c.Options {
		// git sends options as lines: https://git-scm.com/docs/gitprotocol-pack#_push_options
		if len(o) > maxOption || strings.ContainsAny(o, "\n\x00") {
			return fmt.Errorf("%w: a push option is one line of at most %d bytes", ErrInput, maxOption)
		}
	}
	return nil
}

// zero tells whether a name stands for nothing: the null object of either format, or none.
func zero(commit string) bool { return strings.Trim(commit, "0") == "" }

func checkManual(c ManualCall) error {
	if !commitName(c.Commit) || zero(c.Commit) {
		return fmt.Errorf("%w: commit must be a full object name", ErrInput)
	}
	if err := checkAsked(c.Key, c.Only); err != nil {
		return err
	}
	if len(c.Inputs) > maxInputs {
		return fmt.Errorf("%w: more than %d inputs", ErrInput, maxInputs)
	}
	for _, i := range c.Inputs {
		if !inputPattern.MatchString(i.Key) || len(i.Value) > maxInputValue || strings.ContainsRune(i.Value, 0) {
			return fmt.Errorf("%w: input keys are letters, digits, _ and -, values at most %d bytes without NUL", ErrInput, maxInputValue)
		}
	}
	return nil
}

// checkAsked checks what every wish of a person carries.
func checkAsked(key string, only []string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("%w: the key must have 1 to %d characters", ErrInput, maxKey)
	}
	if len(only) > maxOnly {
		return fmt.Errorf("%w: more than %d workflows", ErrInput, maxOnly)
	}
	for _, name := range only {
		if name == "" || len(name) > maxName {
			return fmt.Errorf("%w: the name of a workflow has 1 to %d bytes", ErrInput, maxName)
		}
	}
	return nil
}

// checkRef follows git-check-ref-format(1) for full names, and refuses more: what is not UTF-8, any space, and
// a part that a command could take for an option.
func checkRef(ref string) error {
	rest, ok := strings.CutPrefix(ref, "refs/")
	bad := !ok || len(ref) > maxRef || rest == "" || !utf8.ValidString(ref)
	for _, part := range strings.Split(ref, "/") {
		bad = bad || part == "" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || strings.HasSuffix(part, ".lock")
	}
	bad = bad || strings.Contains(ref, "..") || strings.Contains(ref, "@{") || strings.HasSuffix(ref, ".")
	for _, r := range ref {
		bad = bad || unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("~^:?*[\\", r)
	}
	if bad {
		return fmt.Errorf("%w: ref must be a full name such as refs/heads/main", ErrInput)
	}
	return nil
}

// webDID is the did:web of a host, with its port if there is one.
func webDID(host string) string { return "did:web:" + strings.ReplaceAll(host, ":", "%3A") }
