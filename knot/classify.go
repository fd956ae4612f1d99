package knot

import (
	"regexp"
	"strings"
)

// maxDetail bounds what of git's messages goes into an error.
const maxDetail = 300

// rule ties one of git's messages to what it means.
type rule struct {
	pattern *regexp.Regexp
	kind    error
}

// rules is the one place where git's texts are read (git has no other way to say why it failed). It is
// read top down, the first hit decides. Texts are those of git 2.39 to 2.51 with LC_ALL=C.
func rules() []rule {
	r := func(s string, kind error) rule { return rule{regexp.MustCompile(`(?i)` + s), kind} }
	return []rule{
		r(`no space left on device|disk quota exceeded`, ErrDiskFull), // first: what else is said follows from it
		r(`not our ref`, ErrCommitGone),
		r(`unadvertised object`, ErrCommitGone),
		r(`couldn't find remote ref`, ErrCommitGone),
		r(`no such remote ref`, ErrCommitGone),
		r(`mismatched algorithms`, ErrCommitGone),
		r(`HTTP code 403 from proxy`, ErrDenied),
		r(`HTTP code 407 from proxy`, ErrDenied),
		r(`from proxy after CONNECT`, ErrUnreachable),
		r(`CONNECT tunnel failed, response 40[37]`, ErrDenied),
		r(`CONNECT tunnel failed`, ErrUnreachable),
		r(`repository .* not found`, ErrRepoNotFound),
		r(`returned error: 404`, ErrRepoNotFound),
		r(`does not appear to be a git repository`, ErrRepoNotFound),
		r(`not valid: is this a git repository`, ErrRepoNotFound),
		r(`dumb http transport`, ErrRepoNotFound),
		r(`returned error: 3\d\d`, ErrRedirected),
		r(`unable to update url base from redirection`, ErrRedirected),
		r(`returned error: 4(08|29)`, ErrUnreachable),
		r(`returned error: 4\d\d`, ErrRefused),
		r(`could not read (username|password)`, ErrRefused),
		r(`authentication failed`, ErrRefused),
		r(`transport '.*' not allowed`, ErrInvalid),
		r(`invalid refspec`, ErrInvalid),
		r(`unable to find remote helper`, ErrInvalid),
		r(`file too large|exceeds maximum allowed size`, ErrTooLarge),
		r(`operation too slow|operation timed out`, ErrTimeout),
		r(`could not resolve|failed to connect|couldn't connect|connection refused|connection reset`, ErrUnreachable),
		r(`returned error: 5\d\d`, ErrUnreachable),
		r(`early EOF|unexpected disconnect|hung up`, ErrUnreachable),
		r(`packfile .* (is corrupt|cannot be)|loose object .* is corrupt|bad object|invalid index-pack|index-pack failed|unable to parse|bad packet|protocol error|missing (blob|tree|commit)|object file .* is empty|did not send all necessary objects`, ErrCorrupt),
		r(`RPC failed|unable to access|expected flush|curl \d+`, ErrUnreachable),
	}
}

// classify finds out what a failed git command meant by its standard error. Without a word that is known,
// a command that used the network failed by it, and one that did not has met broken objects.
func (g *Git) classify(op, stderr string, network bool) *GitError {
	e := &GitError{Op: op, Kind: ErrCorrupt, Detail: lastWords(stderr)}
	if network {
		e.Kind = ErrUnreachable
	}
	for _, r := range g.rules {
		if r.pattern.MatchString(stderr) {
			e.Kind = r.kind
			break
		}
	}
	return e
}

// userinfo is the credential part of a URL, which must not get into an error.
var userinfo = regexp.MustCompile(`//[^/@\s]*@`)

// lastWords is the end of git's messages as one short line of printable text.
func lastWords(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	s = userinfo.ReplaceAllString(strings.Join(strings.Fields(s), " "), "//")
	if r := []rune(s); len(r) > maxDetail {
		s = "..." + string(r[len(r)-maxDetail:])
	}
	return s
}
