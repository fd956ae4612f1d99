package netguard

import (
	"fmt"
	"net"
	"net/netip"
)

// special4 lists every block of the IANA IPv4 special-purpose address registry, and multicast
// (https://www.iana.org/assignments/iana-ipv4-special-registry/, RFC 6890 and its updates).
var special4 = prefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private use
	"100.64.0.0/10",   // shared address space (carrier NAT)
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link local, metadata services
	"172.16.0.0/12",   // private use
	"192.0.0.0/24",    // IETF protocol assignments
	"192.0.2.0/24",    // documentation
	"192.31.196.0/24", // AS112
	"192.52.193.0/24", // AMT
	"192.88.99.0/24",  // 6to4 relay anycast
	"192.168.0.0/16",  // private use
	"192.175.48.0/24", // AS112
	"198.18.0.0/15",   // benchmarking
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, limited broadcast
)

// global6 is the only IPv6 space that IANA has handed out for global unicast; whatever lies outside
// (loopback, ULA, link local, multicast, v4-mapped, v4-compatible, NAT64) is refused without a list.
var global6 = netip.MustParsePrefix("2000::/3")

// special6 lists the blocks inside global6 that are not ordinary unicast
// (https://www.iana.org/assignments/iana-ipv6-special-registry/).
var special6 = prefixes(
	"2001::/23",         // IETF protocol assignments: Teredo, ORCHID, benchmarking, AMT
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: carries an IPv4 address
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

// local lists what Dev opens again: loopback and private use.
var local = prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")

func prefixes(s ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(s))
	for i, p := range s {
		out[i] = netip.MustParsePrefix(p)
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// global says whether a is ordinary, globally reachable unicast.
func global(a netip.Addr) bool {
	switch {
	case !a.IsValid(), a.Zone() != "", a.Is4In6():
		return false
	case a.Is4():
		return !within(special4, a)
	default:
		return global6.Contains(a) && !within(special6, a)
	}
}

// CheckAddr decides whether a connection to a may be made. The error is a *DeniedError.
func (g *Guard) CheckAddr(a netip.Addr) error {
	if within(g.cfg.Deny, a.Unmap()) {
		return g.deny(ReasonAddress, a.String())
	}
	if g.cfg.Dev && a.Zone() == "" && within(local, a) {
		return nil
	}
	if !global(a) {
		return g.deny(ReasonAddress, a.String())
	}
	if g.cfg.Dev {
		return nil
	}
	own, err := g.ownAddr(a)
	if err != nil {
		return err
	}
	if own {
		return g.deny(ReasonAddress, a.String())
	}
	return nil
}

// ownAddr says whether a belongs to one of this machine's interfaces. The list is read afresh, since
// addresses come and go, and reading it costs far less than the connection it guards.
func (g *Guard) ownAddr(a netip.Addr) (bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("netguard: list own addresses: %w", err)
	}
	for _, i := range list {
		n, ok := i.(*net.IPNet)
		if !ok {
			continue
		}
		if b, ok := netip.AddrFromSlice(n.IP); ok && b.Unmap() == a {
			return true, nil
		}
	}
	return false, nil
}
