package netguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// forbidden are addresses in every form that has been used to reach the inside of a network.
var forbidden = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1",
	"127.8.9.10", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.170",
	"192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "192.175.48.1", "198.18.0.1",
	"198.19.255.255", "198.51.100.7", "203.0.113.5", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:20::1",
	"2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::", "2620:4f:8000::1", "3fff::1", "5f00::1", "fc00::1",
	"fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1",
}

func TestT24ForbiddenAddresses(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	for _, f := range forbidden {
		a := netip.MustParseAddr(f)
		err := g.CheckAddr(a)
		require.ErrorIs(t, err, ErrDenied, f)
		require.Equal(t, ReasonAddress, reasonOf(err), f)

		// The same through a dial to the literal, and through a name that resolves to it.
		_, err = g.DialContext(t.Context(), "tcp", net.JoinHostPort(f, "443"))
		require.ErrorIs(t, err, ErrDenied, "dial "+f)
		if a.Is4In6() {
			continue // the resolver hands it on as the IPv4 address that it carries
		}
		named := New(Config{Resolver: fakeDNS(t, func(string, int64) []netip.Addr { return []netip.Addr{a} })})
		_, err = named.DialContext(t.Context(), "tcp", "inside.example.com:443")
		require.ErrorIs(t, err, ErrDenied, "name for "+f)
	}
	require.ErrorIs(t, g.CheckAddr(netip.Addr{}), ErrDenied)
	require.ErrorIs(t, g.CheckAddr(netip.MustParseAddr("2600::1%eth0")), ErrDenied)
}

func TestT24PublicAddressesPass(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255",
		"172.32.0.0", "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2600::1", "2606:4700::1111", "2a00::1"} {
		require.NoError(t, g.CheckAddr(netip.MustParseAddr(a)), a)
	}
}

// The trap listens where a careless client would end up; nothing may arrive.
func TestB123NothingReachesTheTrap(t *testing.T) {
	t.Parallel()
	_, hits := trap(t, ":443")
	g := New(Config{Resolver: fakeDNS(t, func(string, int64) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("169.254.169.254")}
	})})
	forms := []string{"localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1",
		"0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.", "0", "0.0.0.0", "::1", "::", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
		"::ffff:7f00:1", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "fe80::1%lo", "::1%1", "127.0.0.1.nip.io",
		"rebind.example.com", "a.127.0.0.1", "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "127.0.0.1\x00.example.com", "user@127.0.0.1",
		"127.0.0.1#.example.com", "127.0.0.1/x", "[::1]", "", " 127.0.0.1", "127.0.0.1 ", "ex%61mple.com", "-x.example.com"}
	require.GreaterOrEqual(t, len(forms), 40)
	for _, f := range forms {
		addr := f + ":443"
		if _, err := netip.ParseAddr(f); err == nil {
			addr = net.JoinHostPort(f, "443")
		}
		_, err := g.DialContext(t.Context(), "tcp", addr)
		require.ErrorIs(t, err, ErrDenied, "%q", f)
	}
	require.Zero(t, hits.Load())
}

func TestT24PortsAndNetworks(t *testing.T) {
	t.Parallel()
	var reasons []string
	g := New(Config{Denied: func(r string) { reasons = append(reasons, r) }})
	for _, p := range []string{"80", "22", "0443", "https", "", "-1", "65536", "4430"} {
		_, err := g.DialContext(t.Context(), "tcp", "example.com:"+p)
		require.Equal(t, ReasonPort, reasonOf(err), "port %q", p)
	}
	for _, n := range []string{"udp", "unix", "ip", ""} {
		_, err := g.DialContext(t.Context(), n, "example.com:443")
		require.Equal(t, ReasonNetwork, reasonOf(err), "network %q", n)
	}
	require.Len(t, reasons, 12)
}

func TestT24OwnInterfaceAddress(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	own, err := g.ownAddr(netip.MustParseAddr("127.0.0.1"))
	require.NoError(t, err)
	require.True(t, own, "the loopback interface's address is one of ours")
	own, err = g.ownAddr(netip.MustParseAddr("8.8.8.8"))
	require.NoError(t, err)
	require.False(t, own)
}

// TestT25Rebinding alternates the answer of the name server. 127.0.0.2 stands for the public address.
func TestT25Rebinding(t *testing.T) {
	t.Parallel()
	good, goodHits := trap(t, "127.0.0.2:0")
	_, port, err := net.SplitHostPort(good.String())
	require.NoError(t, err)
	_, trapHits := trap(t, "127.0.0.1:"+port)
	g := New(Config{
		Dev:     true,
		Deny:    []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Timeout: 5 * time.Second,
		Resolver: fakeDNS(t, func(_ string, n int64) []netip.Addr {
			if n%2 == 0 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}),
	})
	var passed, denied int
	for range 1000 {
		c, err := g.DialContext(t.Context(), "tcp4", "rebind.example.com:"+port)
		switch {
		case err == nil:
			passed++
			require.NoError(t, c.Close())
		case errors.Is(err, ErrDenied):
			denied++
		default:
			require.NoError(t, err)
		}
	}
	require.Equal(t, 500, passed)
	require.Equal(t, 500, denied)
	require.Zero(t, trapHits.Load())
	require.Eventually(t, func() bool { return goodHits.Load() == 500 }, time.Minute, time.Millisecond)
}

// TestB125EveryAddressIsChecked answers with a good address and bad ones in either order and family.
func TestB125EveryAddressIsChecked(t *testing.T) {
	t.Parallel()
	good, goodHits := trap(t, "127.0.0.2:0")
	_, port, err := net.SplitHostPort(good.String())
	require.NoError(t, err)
	_, badHits := trap(t, "127.0.0.1:"+port)
	for _, list := range [][]string{{"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "::1"}, {"::1", "127.0.0.1", "127.0.0.2"}} {
		var addrs []netip.Addr
		for _, a := range list {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		g := New(Config{
			Dev:      true,
			Deny:     []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")},
			Resolver: fakeDNS(t, func(string, int64) []netip.Addr { return addrs }),
		})
		before := goodHits.Load()
		c, err := g.DialContext(t.Context(), "tcp", "both.example.com:"+port)
		require.NoError(t, err, list)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return goodHits.Load() == before+1 }, time.Minute, time.Millisecond)
	}
	require.Zero(t, badHits.Load())
}

func TestDevHosts(t *testing.T) {
	t.Parallel()
	addr, hits := trap(t, "127.0.0.1:0")
	hosts := map[string]string{"Knot.test": addr.String()}
	g := New(Config{Dev: true, Hosts: hosts})
	for _, a := range []string{"knot.test:443", "knot.test:80", "KNOT.test.:5555"} {
		c, err := g.DialContext(t.Context(), "tcp", a)
		require.NoError(t, err, a)
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return hits.Load() == 3 }, time.Minute, time.Millisecond)

	for _, a := range []string{"169.254.169.254:80", "0.0.0.0:80", "[::ffff:169.254.169.254]:80", "[fe80::1]:80"} {
		_, err := g.DialContext(t.Context(), "tcp", a)
		require.ErrorIs(t, err, ErrDenied, a)
	}

	strict := New(Config{Hosts: hosts, Resolver: fakeDNS(t, func(string, int64) []netip.Addr { return nil })})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := strict.DialContext(ctx, "tcp", "knot.test:443")
	require.Error(t, err, "Hosts means nothing without Dev")
	require.EqualValues(t, 3, hits.Load())
}
