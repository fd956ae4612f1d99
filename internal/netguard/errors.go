package netguard

import (
	"errors"
	"fmt"
)

// ErrDenied is what every refusal of this package is (errors.Is). The detail is a *DeniedError.
var ErrDenied = errors.New("netguard: denied")

// ErrTooLarge is returned by ReadLimited when there is more to read than allowed.
var ErrTooLarge = errors.New("netguard: body larger than allowed")

// Reasons for a refusal: a closed set, fit for a metric label.
const (
	ReasonAddress  = "address"    // not a globally reachable address, or one of our own
	ReasonPort     = "port"       // not 443
	ReasonHost     = "host"       // not a host name or an address in its usual form
	ReasonNetwork  = "network"    // not TCP
	ReasonScheme   = "scheme"     // not https
	ReasonRedirect = "redirect"   // a redirect that was not asked for
	ReasonProxy    = "proxy_auth" // a caller of the proxy without its credential
)

// DeniedError says what was refused and why. It is an ErrDenied, and never temporary: asking again
// gives the same answer unless the name resolves to something else.
type DeniedError struct {
	Reason string // one of the Reason constants
	Target string // the address, port, host, network, scheme or host redirected to
}

// Error implements error.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("netguard: denied %s %q", e.Reason, e.Target)
}

// Is makes every DeniedError an ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

func (g *Guard) deny(reason, target string) error {
	if len(target) > 255 {
		target = target[:255]
	}
	if g.cfg.Denied != nil {
		g.cfg.Denied(reason)
	}
	return &DeniedError{Reason: reason, Target: target}
}
