package workflow

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"spindle/pipeline"
)

// decoder reads a tree into a Spec. Every method reports what is wrong and returns a usable zero, so that
// one reading tells all problems.
type decoder struct {
	*report
	lim      Limits
	patterns int
	uses     []use
	needsAt  []pos
	engineAt pos
	matrixAt pos
	// asked are the expressions of the file; they are checked once everything that they can name is known.
	asked []asked
}

// object calls set for every key of n that keys has, and tells which are missing. where names n in messages, such as
// "step 2". It returns the keys that are there, counting a misspelt one as what was probably meant, so that it is not
// called missing as well.
func (d *decoder) object(n *node, where string, keys []key, set func(p pair)) (there keyNames) {
	there = make(keyNames, 0, min(len(keys), len(n.pairs)))
	if n.kind != mapping {
		d.err(n.at, codeType, "write keys with values, such as name: test", "%s must be a mapping of keys, this is %s", where, n)
		return there
	}
	for _, p := range n.pairs {
		if slices.ContainsFunc(keys, func(k key) bool { return k.name == p.key }) {
			there = append(there, p.key)
			set(p)
			continue
		}
		if meant := d.unknown(p, where, keys, there); meant != "" && !there.has(meant) {
			there = append(there, meant)
		}
	}
	for _, k := range keys {
		if k.need != "" && !there.has(k.name) {
			d.err(n.at, codeRequired, k.need, "%s has no %s", where, quoted(k.name))
		}
	}
	return there
}

// keyNames are some of the few keys of an object.
type keyNames []string

func (s keyNames) has(name string) bool { return slices.Contains(s, name) }

// unknown reports p and returns the key that was probably meant, or "". there are the keys so far.
func (d *decoder) unknown(p pair, where string, keys []key, there keyNames) string {
	if len(d.found) >= d.limit { // it is only counted, so what was meant need not be found out
		d.err(p.at, codeKey, "remove it", "unknown key")
		return ""
	}
	known := make([]string, 0, len(keys))
	for _, k := range keys {
		known = append(known, k.name)
	}
	slices.Sort(known)
	if meant, says, fix := elsewhere(p, known); fix != "" {
		d.err(p.at, codeKey, fix, "unknown key %s in %s; %s", quoted(p.key), where, says)
		return meant
	}
	if want := foreign(p.key, known); want != "" {
		fix := "rename it to " + want
		if want == "when" && p.value.kind != scalar && (p.value.kind != sequence || len(p.value.items) == 0 || p.value.items[0].kind != mapping) {
			fix = "write when: [{event: push, branch: [main]}], a list of conditions"
		}
		d.err(p.at, codeKey, fix, "unknown key %s in %s; here it is called %s", quoted(p.key), where, quoted(want))
		switch {
		case there.has(want):
		case want == "when":
			d.mendWhen(p)
		case sameShape(p.key, want):
			d.mend(p.at, p.key, want)
		}
		return want
	}
	fix := "remove it, or use one of " + list(known)
	meant, alone := nearestAlone(p.key, known)
	if meant != "" {
		fix = "rename it to " + meant
	}
	d.err(p.at, codeKey, fix, "unknown key %s in %s%s", quoted(p.key), where, didYouMean(p.key, known))
	if alone && !there.has(meant) {
		d.mend(p.at, p.key, meant)
	}
	return meant
}

// mendWhen turns what other systems say for when into ours, where that is plain: conditions as they are, and the one
// word push, pull_request or manual.
func (d *decoder) mendWhen(p pair) {
	v := p.value
	switch {
	case v.kind == sequence && len(v.items) > 0 && v.items[0].kind == mapping:
		d.mend(p.at, p.key, "when")
	case v.kind == scalar && v.plain && slices.Contains(events()[:3], v.text):
		condition := "[{event: " + v.text + ", branch: [\"**\"]}]"
		if v.text == string(pipeline.Manual) {
			condition = "[{event: manual}]"
		}
		d.mend(p.at, p.key, "when")
		d.mend(v.at, v.text, condition)
	}
}

// sameShape tells whether the key of another system takes what ours takes, so that the name is all that differs.
func sameShape(theirs, ours string) bool {
	switch ours {
	case "command", "environment", "runs_on", "branch", "event", "paths", "types", "compression-level", "depth", "cache",
		"working_directory", "continue_on_error", "artifacts":
		return theirs != "tags" && theirs != "variables"
	}
	return false
}

// foreign is the key of known that other systems call key, or "".
func foreign(key string, known []string) string {
	for _, w := range []struct{ theirs, ours string }{
		{"on", "when"}, {"trigger", "when"}, {"triggers", "when"}, {"rules", "when"},
		{"run", "command"}, {"script", "command"}, {"commands", "command"}, {"cmd", "command"},
		{"env", "environment"}, {"variables", "environment"},
		{"runs-on", "runs_on"}, {"labels", "runs_on"}, {"tags", "runs_on"},
		{"timeout-minutes", "timeout"}, {"timeout_in_minutes", "timeout"},
		{"branches", "branch"}, {"events", "event"}, {"path", "paths"}, {"type", "types"}, {"crons", "schedule"},
		{"checkout", "clone"}, {"fetch-depth", "depth"}, {"compression_level", "compression-level"},
		{"caches", "cache"}, {"restore-keys", "fallback"},
		{"depends_on", "needs"}, {"dependsOn", "needs"}, {"continue-on-error", "continue_on_error"}, {"allow_failure", "continue_on_error"},
		{"working-directory", "working_directory"}, {"workdir", "working_directory"}, {"cwd", "working_directory"},
		{"strategy", "matrix"}, {"deploys-to", "deploys_to"}, {"if-condition", "if"}, {"cancel-in-progress", "cancel"}, {"cancel_in_progress", "cancel"},
		{"artefacts", "artifacts"}, {"container", "image"}, {"retries", "retry"}, {"retention-days", "retention"}, {"expire_in", "retention"},
	} {
		if strings.EqualFold(w.theirs, key) && slices.Contains(known, w.ours) {
			return w.ours
		}
	}
	return ""
}

// text reads one scalar. Empty text is allowed only where the caller allows it.
func (d *decoder) text(key string, at pos, v *node) (string, bool) {
	switch v.kind {
	case scalar:
		if len(v.text) > d.lim.ValueBytes {
			d.err(v.at, codeLimit, "move it into a file of the repository",
				"%s has %d bytes, more than the %d allowed", quoted(key), len(v.text), d.lim.ValueBytes)
			return "", false
		}
		if strings.ContainsRune(v.text, 0) {
			d.err(v.at, codeEncoding, "remove the character", "%s holds a NUL character", quoted(key))
			return "", false
		}
		return v.text, true
	case null:
		d.err(at, codeType, "write a value after the colon, or remove the key", "%s has no value", quoted(key))
	default:
		d.err(v.at, codeType, "write one value", "%s must be text, this is %s", quoted(key), v)
	}
	return "", false
}

// word is text that is not empty and of at most most bytes on one line.
func (d *decoder) word(key string, at pos, v *node, most int) string {
	s, ok := d.text(key, at, v)
	switch {
	case !ok:
		return ""
	case strings.TrimSpace(s) == "":
		d.err(v.at, codeValue, "write a value, or remove the key", "%s is empty", quoted(key))
		return ""
	case len(s) > most:
		d.err(v.at, codeLimit, "shorten it", "%s has %d bytes, more than the %d allowed", quoted(key), len(s), most)
		return ""
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		d.err(v.at, codeValue, "write it on one line", "%s must be one line of plain text", quoted(key))
		return ""
	}
	return s
}

// texts reads a string or a list of strings; each is called for every one.
func (d *decoder) texts(key string, at pos, v *node, most int, each func(n *node, s string)) {
	items := v.items
	switch v.kind {
	case scalar:
		items = []*node{v}
	case null:
		d.err(at, codeType, "write a value or a list such as [a, b], or remove the key", "%s has no value", quoted(key))
		return
	case mapping:
		d.err(v.at, codeType, "write a list such as [a, b]", "%s must be text or a list of texts, this is %s", quoted(key), v)
		return
	}
	if len(items) > most {
		d.err(v.at, codeLimit, "shorten the list", "%s has %d entries, more than the %d allowed", quoted(key), len(items), most)
		return
	}
	for _, n := range items {
		switch {
		case n.kind == null:
			d.err(n.at, codeType, "write a value, or remove the entry", "an entry of %s has no value", quoted(key))
		case n.kind != scalar:
			d.err(n.at, codeType, "write plain texts, such as [a, b]", "an entry of %s must be text, this is %s", quoted(key), n)
		case n.text == "":
			d.err(n.at, codeValue, "write a value, or remove the entry", "an entry of %s is empty", quoted(key))
		case len(n.text) > textLimit:
			d.err(n.at, codeLimit, "shorten it", "an entry of %s has %d bytes, more than the %d allowed", quoted(key), len(n.text), textLimit)
		case strings.IndexFunc(n.text, unicode.IsControl) >= 0:
			d.err(n.at, codeValue, "write it on one line", "an entry of %s must be one line of plain text", quoted(key))
		default:
			each(n, n.text)
		}
	}
}

// bool reads true or false.
func (d *decoder) bool(key string, at pos, v *node, into *bool) {
	s, ok := d.text(key, at, v)
	if !ok {
		return
	}
	switch {
	case v.plain && (s == "true" || s == "True" || s == "TRUE"):
		*into = true
	case v.plain && (s == "false" || s == "False" || s == "FALSE"):
		*into = false
	default:
		d.err(v.at, codeType, "write true or false, without quotes", "%s must be true or false, this is %s", quoted(key), v)
		switch word := strings.ToLower(s); {
		case !v.plain && (word == "true" || word == "false"):
			d.mend(v.at, `"`+s+`"`, word)
			d.mend(v.at, "'"+s+"'", word)
		case v.plain && (word == "yes" || word == "on"):
			d.mend(v.at, s, "true")
		case v.plain && (word == "no" || word == "off"):
			d.mend(v.at, s, "false")
		}
	}
}

// int reads a number between least and most.
func (d *decoder) int(key string, at pos, v *node, least, most int, into *int) {
	s, ok := d.text(key, at, v)
	if !ok {
		return
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		d.err(v.at, codeValue, "write a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most),
			"%s must be a number from %d to %d, this is %s", quoted(key), least, most, v)
		return
	}
	*into = n
}

// bareNumber is a time without a unit.
var bareNumber = regexp.MustCompile(`^[0-9]+$`)

// duration reads a time span such as 90s, 20m or 1h30m.
func (d *decoder) duration(key string, at pos, v *node, into *time.Duration) {
	s, ok := d.text(key, at, v)
	if !ok {
		return
	}
	t, err := time.ParseDuration(s)
	switch {
	case err != nil && bareNumber.MatchString(s) || s == "0":
		d.err(v.at, codeValue, "write "+clean(s, 20)+"m for minutes or "+clean(s, 20)+"s for seconds", "%s has no unit, this is %s", quoted(key), v)
	case err != nil:
		d.err(v.at, codeValue, "write a time such as 90s, 20m or 1h30m", "%s is not a time span, this is %s", quoted(key), v)
	case t < time.Second || t > d.lim.Timeout:
		d.err(v.at, codeValue, "write a time from 1s to "+short(d.lim.Timeout),
			"%s must be between 1s and %s, this is %s", quoted(key), short(d.lim.Timeout), v)
	default:
		*into = t
	}
}

// short is t without the units that are zero.
func short(t time.Duration) string {
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sequence returns the entries of a list that must have entries of at most most.
func (d *decoder) sequence(key string, at pos, v *node, most int) []*node {
	switch {
	case v.kind == null:
		d.err(at, codeType, "write a list, or remove the key", "%s has no value", quoted(key))
	case v.kind != sequence:
		d.err(v.at, codeType, "start every entry with a dash", "%s must be a list, this is %s", quoted(key), v)
	case len(v.items) > most:
		d.err(v.at, codeLimit, "shorten the list", "%s has %d entries, more than the %d allowed", quoted(key), len(v.items), most)
	default:
		return v.items
	}
	return nil
}
