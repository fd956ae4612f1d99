package knot

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	shaForm  = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
	didForm  = regexp.MustCompile(`^did:[a-z]{1,16}:[a-zA-Z0-9._:%-]{1,512}$`)
	hostForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// checkSHA accepts a full commit hash in lower case, SHA-1 or SHA-256.
func checkSHA(sha string) error {
	if !shaForm.MatchString(sha) {
		return fmt.Errorf("%w: not a commit hash: %q", ErrInvalid, cut(sha))
	}
	return nil
}

// checkRef accepts "HEAD" and full ref names by the rules of git-check-ref-format, without the forms that
// a shell, a refspec or a command line could read as something else.
func checkRef(ref string) error {
	bad := fmt.Errorf("%w: not a ref name: %q", ErrInvalid, cut(ref))
	if ref == "HEAD" {
		return nil
	}
	if !strings.HasPrefix(ref, "refs/") || len(ref) > 1024 || strings.HasSuffix(ref, ".") ||
		strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return bad
	}
	for _, r := range ref {
		if r <= ' ' || r == 0x7f || r == 0xfffd || strings.ContainsRune("~^:?*[\\", r) {
			return bad
		}
	}
	parts := strings.Split(ref, "/")
	if len(parts) < 3 {
		return bad
	}
	for _, p := range parts {
		if p == "" || p[0] == '.' || p[0] == '-' || strings.HasSuffix(p, ".lock") {
			return bad
		}
	}
	return nil
}

// Source says where the objects of a repository come from. Take both fields from a Binding: the knot is
// the one that the repository's DID document names.
type Source struct {
	Repo    string // DID of the repository
	KnotURL string // origin of the knot, such as "https://knot.example"
}

// CloneURL is the repository's address as text, for showing and for a job's environment.
func (s Source) CloneURL() string {
	return strings.TrimSuffix(s.KnotURL, "/") + "/" + strings.ReplaceAll(s.Repo, "%", "%25")
}

// cloneURL is the address that git fetches from. It is built from checked parts only. Error: ErrInvalid.
func (s Source) cloneURL(dev bool) (string, error) {
	if !didForm.MatchString(s.Repo) {
		return "", fmt.Errorf("%w: not a repository DID: %q", ErrInvalid, cut(s.Repo))
	}
	u, err := parseOrigin(s.KnotURL, dev)
	if err != nil {
		return "", err
	}
	return Source{Repo: s.Repo, KnotURL: u.Scheme + "://" + u.Host}.CloneURL(), nil
}

// parseOrigin accepts scheme, host and an optional port, and nothing else.
func parseOrigin(s string, dev bool) (*url.URL, error) {
	bad := fmt.Errorf("%w: not the address of a knot: %q", ErrInvalid, cut(s))
	// An empty query or fragment leaves no trace in the URL that is parsed.
	if strings.ContainsAny(s, "?#@\\%") {
		return nil, bad
	}
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || (u.Path != "" && u.Path != "/") {
		return nil, bad
	}
	if !allowedScheme(u.Scheme, dev) || !hostForm.MatchString(u.Hostname()) || strings.HasSuffix(u.Host, ":") {
		return nil, bad
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, bad
		}
	}
	u.Path = ""
	return u, nil
}

func allowedScheme(scheme string, dev bool) bool {
	return scheme == "https" || dev && scheme == "http"
}

// cut shortens hostile text for an error.
func cut(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "?") + "..."
	}
	return s
}
