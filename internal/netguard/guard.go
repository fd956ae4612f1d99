package netguard

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Config says what a Guard allows. The zero value is the strict one.
type Config struct {
	// Dev allows loopback and private addresses, every port and plain http. Never set it on a server
	// that strangers can reach.
	Dev bool
	// Hosts maps a host name to the "ip:port" to dial instead, whatever port was asked for. It is read
	// only with Dev; without it the map is ignored.
	Hosts map[string]string
	// Deny lists more networks to refuse, with Dev as well.
	Deny []netip.Prefix
	// Resolver resolves names. Nil means net.DefaultResolver.
	Resolver *net.Resolver
	// Timeout bounds resolving and connecting. Zero means 10 s.
	Timeout time.Duration
	// Denied is told the reason of each refusal (one of the Reason constants), for a counter. It may be
	// nil, is called from many goroutines, and must not block.
	Denied func(reason string)
}

// Guard dials outward. Make it with New; it is safe for concurrent use and holds nothing to close.
type Guard struct {
	cfg    Config
	hosts  map[string]string
	dialer net.Dialer
}

// New returns a guard for c.
func New(c Config) *Guard {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	g := &Guard{cfg: c, hosts: map[string]string{}}
	if c.Dev {
		for name, addr := range c.Hosts {
			g.hosts[canonical(name)] = addr
		}
	}
	g.dialer = net.Dialer{
		Timeout:   c.Timeout,
		KeepAlive: 30 * time.Second,
		Resolver:  c.Resolver,
		Control:   g.control,
	}
	return g
}

// DialContext connects to addr ("host:port") over TCP if the address that host resolves to may be
// reached. It fits http.Transport.DialContext and websocket.Dialer.NetDialContext. A refusal is an
// ErrDenied.
func (g *Guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, g.deny(ReasonNetwork, network)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, g.deny(ReasonHost, addr)
	}
	if over, ok := g.hosts[canonical(host)]; ok {
		addr = over
	} else {
		if !usualHost(host) {
			return nil, g.deny(ReasonHost, host)
		}
		if err := g.checkPort(port); err != nil {
			return nil, err
		}
	}
	c, err := g.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("netguard: dial %s: %w", host, err)
	}
	return c, nil
}

// control runs after resolving and before connecting, with the very address to connect to.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return g.deny(ReasonAddress, address)
	}
	return g.CheckAddr(ap.Addr())
}

func (g *Guard) checkPort(port string) error {
	// The port is compared as text: "0443" and service names such as "https" are refused with the rest.
	if port == "443" || g.cfg.Dev && numeric.MatchString(port) {
		return nil
	}
	return g.deny(ReasonPort, port)
}

var (
	numeric  = regexp.MustCompile(`^[0-9]{1,5}$`)
	hostName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	// A last label of digits or of 0x and hex digits is an IPv4 address in one of the forms that some
	// resolvers still read (WHATWG URL, "ends in a number").
	numberLabel = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
)

// usualHost says whether host is a DNS name or an address in its usual text form.
func usualHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == "" && !a.Is4In6()
	}
	h := canonical(host)
	return len(h) <= 253 && hostName.MatchString(h) && !numberLabel.MatchString(h)
}

// canonical is a host name in lower case without the root's dot.
func canonical(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
