package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// ErrDenied is returned, wrapped with the reason, when the guard refused an address, a port, a scheme or
// a redirect. It will be refused again: callers treat it as permanent.
var ErrDenied = errors.New("netguard: refused")

// ErrRedirect is the ErrDenied of a redirect.
var ErrRedirect = fmt.Errorf("%w: redirect", ErrDenied)

// Config says what is open. The zero value is the production rule: public addresses, port 443.
type Config struct {
	// Dev opens all ports and plain http, and lets the four fields below it be set. Never on a server
	// that others reach.
	Dev bool
	// AllowLoopback opens 127.0.0.0/8 and ::1.
	AllowLoopback bool
	// AllowNets opens these nets although they are special-purpose.
	AllowNets []netip.Prefix
	// Hosts maps a host name (lower case, without port) to an ip:port that is dialled in its place,
	// whatever port was asked for. Servers named here speak plain http; an https URL to them is sent as
	// http. The address is checked like any other.
	Hosts map[string]string
	// DenyNets closes nets although they are public, before everything that opens.
	DenyNets []netip.Prefix
	// Resolver answers names; nil is the system's.
	Resolver *net.Resolver
	// Timeout bounds one dial, name resolution included. Zero is 5 s.
	Timeout time.Duration
	// UserAgent is sent by the HTTP clients that do not set their own. Empty sends Go's.
	UserAgent string
	// Denied is told each refusal with a short reason of a closed set; nil counts nothing. It must not
	// block.
	Denied func(reason string)

	ownAddrs func() ([]net.Addr, error) // tests put a list of their own here
}

// Guard applies one Config. It is safe for concurrent use and holds nothing that needs closing.
type Guard struct {
	dev       bool
	hosts     map[string]string
	rule      *rule
	dialer    net.Dialer
	userAgent string
	denied    func(string)
}

// New checks c and returns its guard. Development settings without Dev are an error, so that a forgotten
// line of configuration cannot open a server.
func New(c Config) (*Guard, error) {
	if !c.Dev && (c.AllowLoopback || len(c.AllowNets) > 0 || len(c.Hosts) > 0) {
		return nil, errors.New("netguard: AllowLoopback, AllowNets and Hosts need development mode")
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Denied == nil {
		c.Denied = func(string) {}
	}
	if c.ownAddrs == nil {
		c.ownAddrs = net.InterfaceAddrs
	}
	hosts := make(map[string]string, len(c.Hosts))
	for name, addr := range c.Hosts {
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("netguard: host %q: %w", name, err)
		}
		hosts[normalHost(name)] = addr
	}
	g := &Guard{dev: c.Dev, hosts: hosts, rule: newRule(c), userAgent: c.UserAgent, denied: c.Denied}
	g.dialer = net.Dialer{
		Timeout:  c.Timeout,
		Resolver: c.Resolver,
		// ControlContext runs for every socket between its creation and connect, with the address after
		// resolution: the only place where the check and the use cannot differ.
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return g.control(network, address)
		},
	}
	return g, nil
}

// Dev reports whether plain http and other ports are open.
func (g *Guard) Dev() bool { return g.dev }

// Plain reports whether host is one of Config.Hosts, which speak plain http.
func (g *Guard) Plain(host string) bool {
	_, ok := g.hosts[normalHost(host)]
	return ok
}

// DialContext opens a TCP connection to address ("host:port") if the rule allows it. It has the shape
// that net/http and websocket dialers take (NetDialContext).
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, g.deny("network", fmt.Sprintf("network %q", network))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, g.deny("address", fmt.Sprintf("address %q", address))
	}
	host = normalHost(host)
	if over, ok := g.hosts[host]; ok {
		return g.dialer.DialContext(ctx, "tcp", over)
	}
	if _, err := netip.ParseAddr(host); err != nil && numericHost(host) {
		return nil, g.deny("address", fmt.Sprintf("host %q is a number", host))
	}
	if err := g.port(port); err != nil {
		return nil, err
	}
	return g.dialer.DialContext(ctx, network, net.JoinHostPort(host, port))
}

func (g *Guard) control(network, address string) error {
	switch network {
	case "tcp4", "tcp6":
	default:
		return g.deny("network", fmt.Sprintf("network %q", network))
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return g.deny("address", fmt.Sprintf("address %q", address))
	}
	if err := g.port(strconv.Itoa(int(ap.Port()))); err != nil {
		return err
	}
	if why := g.rule.check(ap.Addr()); why != "" {
		return g.deny("address", why)
	}
	return nil
}

func (g *Guard) port(port string) error {
	if g.dev || port == "443" {
		return nil
	}
	return g.deny("port", fmt.Sprintf("port %q", port))
}

// deny counts a refusal and makes its error. The text names the rule, and never the resolved address: who
// asked learns nothing about the network the server stands in.
func (g *Guard) deny(reason, text string) error {
	g.denied(reason)
	return fmt.Errorf("%w: %s", ErrDenied, text)
}
