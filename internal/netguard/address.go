package netguard

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// deniedV4 is the IANA IPv4 special-purpose address registry (RFC 6890 and later entries), multicast
// and class E, and the one metadata service that lives on a public-looking address.
func deniedV4() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8",          // this network
		"10.0.0.0/8",         // private
		"100.64.0.0/10",      // carrier NAT, and Alibaba's metadata service
		"127.0.0.0/8",        // loopback
		"168.63.129.16/32",   // Azure's host service
		"169.254.0.0/16",     // link-local, and most metadata services
		"172.16.0.0/12",      // private
		"192.0.0.0/24",       // IETF protocol assignments, and Oracle's metadata service
		"192.0.2.0/24",       // documentation
		"192.31.196.0/24",    // AS112
		"192.52.193.0/24",    // AMT
		"192.88.99.0/24",     // 6to4 relay
		"192.168.0.0/16",     // private
		"192.175.48.0/24",    // AS112
		"198.18.0.0/15",      // benchmarking
		"198.51.100.0/24",    // documentation
		"203.0.113.0/24",     // documentation
		"224.0.0.0/4",        // multicast
		"240.0.0.0/4",        // reserved
		"255.255.255.255/32", // broadcast
	)
}

// deniedV6 is what is special inside 2000::/3; everything outside that block is refused as a whole
// (loopback, mapped, NAT64, discard, unique local, link-local, multicast, segment routing).
func deniedV6() []netip.Prefix {
	return prefixes(
		"2001::/23",         // IETF protocol assignments: Teredo, benchmarking, ORCHID
		"2001:db8::/32",     // documentation
		"2002::/16",         // 6to4
		"2620:4f:8000::/48", // AS112
		"3fff::/20",         // documentation
	)
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// rule decides about one address.
type rule struct {
	loopback bool           // 127.0.0.0/8 and ::1 are open
	allow    []netip.Prefix // open although special
	deny     []netip.Prefix // closed although public
	v4, v6   []netip.Prefix
	global6  netip.Prefix
	own      *ownAddrs
}

func newRule(c Config) *rule {
	return &rule{
		loopback: c.AllowLoopback,
		allow:    c.AllowNets,
		deny:     c.DenyNets,
		v4:       deniedV4(),
		v6:       deniedV6(),
		global6:  netip.MustParsePrefix("2000::/3"),
		own:      &ownAddrs{list: c.ownAddrs},
	}
}

// check returns why a may not be dialled, or "".
func (r *rule) check(a netip.Addr) string {
	if !a.IsValid() {
		return "not an address"
	}
	if a.Zone() != "" {
		return "address with a zone"
	}
	a = a.Unmap()
	for _, p := range r.deny {
		if p.Contains(a) {
			return "net closed by configuration"
		}
	}
	if r.loopback && a.IsLoopback() {
		return ""
	}
	for _, p := range r.allow {
		if p.Contains(a) {
			return ""
		}
	}
	if a.Is4() {
		for _, p := range r.v4 {
			if p.Contains(a) {
				return "special-purpose address"
			}
		}
	} else {
		if !r.global6.Contains(a) {
			return "special-purpose address"
		}
		for _, p := range r.v6 {
			if p.Contains(a) {
				return "special-purpose address"
			}
		}
	}
	if r.own.has(a) {
		return "address of this machine"
	}
	return ""
}

// ownAddrs is the set of the machine's interface addresses, read again when older than ownAge, because
// addresses come and go while the server runs.
type ownAddrs struct {
	list func() ([]net.Addr, error)

	mu  sync.Mutex
	at  time.Time
	set map[netip.Addr]bool
}

const ownAge = 10 * time.Second

func (o *ownAddrs) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The age is a cache's, not a decision by the hour, so it is read from the machine directly.
	if o.set == nil || time.Since(o.at) > ownAge {
		addrs, err := o.list()
		if err != nil {
			// Without the list the safe answer is the former one; the special-purpose ranges stay closed.
			return o.set[a]
		}
		set := make(map[netip.Addr]bool, len(addrs))
		for _, ia := range addrs {
			if p, err := netip.ParsePrefix(ia.String()); err == nil {
				set[p.Addr().WithZone("").Unmap()] = true
			}
		}
		o.set, o.at = set, time.Now()
	}
	return o.set[a]
}

// normalHost is the one spelling of a host name under which it is compared: lower case, no final dot.
func normalHost(h string) string { return strings.TrimSuffix(strings.ToLower(h), ".") }

// numericHost reports whether h reads as an old-style IPv4 number (127.1, 0x7f000001, 2130706433,
// 0177.0.0.1), which some resolvers turn into an address. The URL standard ends such a host in a number.
func numericHost(h string) bool {
	last := h[strings.LastIndexByte(h, '.')+1:]
	if last == "" {
		return true
	}
	if strings.HasPrefix(last, "0x") {
		return strings.Trim(last[2:], "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
