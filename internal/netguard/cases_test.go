package netguard

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// TestB124FirstPublicThenInside lets a name resolve to a public address first and to our own machine from then on,
// over a real name server, and redirects calls and websockets inside. Nothing may arrive.
func TestB124FirstPublicThenInside(t *testing.T) {
	t.Parallel()
	_, hits := trap(t, "127.0.0.1:443")
	g := New(Config{Timeout: 300 * time.Millisecond, Resolver: fakeDNS(t, func(_ string, n int64) []netip.Addr {
		if n == 0 {
			return []netip.Addr{netip.MustParseAddr("203.0.113.5")} // documentation: refused as well, and nobody is there
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})})
	c := g.HTTPClient(ClientOptions{Redirects: 3})
	for range 5 {
		_, err := get(t, c, "https://rebind.example.com/")
		require.ErrorIs(t, err, ErrDenied)
	}
	require.Zero(t, hits.Load())
}

// TestB124RedirectsOfCallsAndSockets answers a call and the opening of a websocket with a redirect.
func TestB124RedirectsOfCallsAndSockets(t *testing.T) {
	t.Parallel()
	var inside int
	trapped := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside++ }))
	t.Cleanup(trapped.Close)
	to := trapped.URL
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }))
	t.Cleanup(s.Close)
	g := New(Config{Dev: true})
	for _, to = range []string{trapped.URL, "file:///etc/passwd", strings.Replace(s.URL, "http:", "https:", 1), "http://169.254.169.254/", "//" + trapped.Listener.Addr().String()} {
		_, err := get(t, g.HTTPClient(ClientOptions{Redirects: 3}), s.URL)
		require.ErrorIs(t, err, ErrDenied, to)
	}
	to = strings.Replace(trapped.URL, "http:", "ws:", 1)
	d := websocket.Dialer{NetDialContext: g.DialContext, HandshakeTimeout: 10 * time.Second}
	conn, res, err := d.DialContext(t.Context(), strings.Replace(s.URL, "http:", "ws:", 1), nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	require.Nil(t, conn)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusFound, res.StatusCode)
	require.Zero(t, inside)
}

// TestB125SeveralAddresses answers with lists of which some are inside: none of those is connected to.
func TestB125SeveralAddresses(t *testing.T) {
	t.Parallel()
	_, hits := trap(t, "127.0.0.3:443")
	for _, list := range [][]string{{"203.0.113.5", "::1"}, {"203.0.113.5", "10.0.0.1"}, {"10.0.0.1", "127.0.0.3"}, {"::1", "fd00::1", "127.0.0.3"}} {
		var addrs []netip.Addr
		for _, a := range list {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		var reasons []string
		g := New(Config{Denied: func(r string) { reasons = append(reasons, r) }, Timeout: 2 * time.Second, Resolver: fakeDNS(t, func(string, int64) []netip.Addr { return addrs })})
		_, err := g.DialContext(t.Context(), "tcp4", net.JoinHostPort("many.example.com", "443"))
		require.ErrorIs(t, err, ErrDenied, list)
		require.NotEmpty(t, reasons)
	}
	require.Zero(t, hits.Load())
}
