package identity

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"golang.org/x/net/publicsuffix"
)

var (
	plcDID       = regexp.MustCompile(`^did:plc:[a-z2-7]{24}$`)
	endpointHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$`)
)

// CheckDID accepts the two DID methods of atproto (https://atproto.com/specs/did) in their one canonical
// spelling, so that a DID is the same text in the resolver, as a database key and on a page: did:plc, and
// did:web with a lower-case public host name (no port, path, percent sign, address or bare public suffix).
// With dev, host names of the reserved .test zone are accepted too. The error is ErrBadDID.
func CheckDID(did string, dev bool) error {
	if len(did) > 300 {
		return fmt.Errorf("%w: %d characters", ErrBadDID, len(did))
	}
	if plcDID.MatchString(did) {
		return nil
	}
	host, ok := strings.CutPrefix(did, "did:web:")
	if !ok {
		return fmt.Errorf("%w: %q", ErrBadDID, did)
	}
	if err := checkHost(host, dev); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrBadDID, did, err)
	}
	return nil
}

func checkHost(host string, dev bool) error {
	h, err := syntax.ParseHandle(host) // a handle is a host name: labels of letters, digits and hyphens, two at least
	switch {
	case err != nil:
		return fmt.Errorf("not a host name")
	case host != strings.ToLower(host):
		return fmt.Errorf("host name not in lower case")
	case !h.AllowedTLD():
		return fmt.Errorf("host name in a zone for special use")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return fmt.Errorf("address in place of a host name")
	}
	if dev && strings.HasSuffix(host, ".test") {
		return nil
	}
	// A suffix that the list knows only by its default rule ("*") is no public zone.
	suffix, icann := publicsuffix.PublicSuffix(host)
	if !icann && !strings.Contains(suffix, ".") {
		return fmt.Errorf("host name outside the public zones")
	}
	if suffix == host {
		return fmt.Errorf("host name is a public suffix")
	}
	return nil
}

// checkEndpoint makes the origin ("https://host[:port]") out of a service endpoint of a DID document.
// Plain http is for dev. The error is ErrBadDocument.
func checkEndpoint(raw string, dev bool) (string, error) {
	if len(raw) > 2048 {
		return "", fmt.Errorf("%w: endpoint of %d characters", ErrBadDocument, len(raw))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("%w: endpoint is no URL", ErrBadDocument) // the parser's error may quote a password
	}
	plain := u.Scheme == "http" && dev
	switch {
	case u.Scheme != "https" && !plain:
		return "", fmt.Errorf("%w: endpoint scheme %q", ErrBadDocument, u.Scheme)
	case u.User != nil, strings.ContainsAny(raw, "?#"), u.Opaque != "", u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("%w: endpoint is more than an origin", ErrBadDocument)
	case !endpointHost.MatchString(u.Host):
		return "", fmt.Errorf("%w: endpoint host %q", ErrBadDocument, u.Host)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("%w: endpoint port %q", ErrBadDocument, port)
		}
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}
