package netguard

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startProxy(t *testing.T, g *Guard) *Proxy {
	t.Helper()
	p, err := g.StartProxy(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func through(t *testing.T, proxy string, insecure *http.Client) *http.Client {
	t.Helper()
	u, err := url.Parse(proxy)
	require.NoError(t, err)
	tr := &http.Transport{Proxy: http.ProxyURL(u)}
	if insecure != nil {
		tr.TLSClientConfig = insecure.Transport.(*http.Transport).TLSClientConfig.Clone()
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func TestProxyTunnelAndPlain(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "" {
			http.Error(w, "the credential leaked", http.StatusTeapot)
			return
		}
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	tls := httptest.NewTLSServer(echo)
	t.Cleanup(tls.Close)
	plain := httptest.NewServer(echo)
	t.Cleanup(plain.Close)
	g := New(Config{Dev: true, Hosts: map[string]string{
		"example.com": tls.Listener.Addr().String(),
		"plain.test":  plain.Listener.Addr().String(),
	}})
	p := startProxy(t, g)
	c := through(t, p.URL(), tls.Client())
	body := strings.Repeat("0123456789abcdef", 64<<10)
	for _, u := range []string{"https://example.com/", "http://plain.test/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err, u)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, u)
		require.True(t, string(got) == body, u)
	}
}

func TestT25ProxyDenies(t *testing.T) {
	t.Parallel()
	addr, hits := trap(t, "127.0.0.1:0")
	g := New(Config{Resolver: fakeDNS(t, func(string, int64) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })})
	p := startProxy(t, g)
	c := through(t, p.URL(), nil)
	for _, u := range []string{"https://rebind.example.com/", "https://127.0.0.1/", "https://" + addr.String() + "/", "https://[::1]/",
		"https://169.254.169.254/", "https://example.com:22/"} {
		_, err := get(t, c, u)
		require.ErrorContains(t, err, "Forbidden", u)
	}
	for _, u := range []string{"http://" + addr.String() + "/", "http://example.com/"} {
		code, err := get(t, c, u)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, code, "plain http outside Dev: %s", u)
	}
	require.Zero(t, hits.Load())
}

func TestProxyNeedsItsCredential(t *testing.T) {
	t.Parallel()
	addr, hits := trap(t, "127.0.0.1:0")
	var reasons []string
	p := startProxy(t, New(Config{Dev: true, Denied: func(r string) { reasons = append(reasons, r) }}))
	u, err := url.Parse(p.URL())
	require.NoError(t, err)
	for _, user := range []*url.Userinfo{nil, url.UserPassword("spindle", ""), url.UserPassword("spindle", "wrong"), url.UserPassword("x", p.pass)} {
		u.User = user
		_, err := get(t, through(t, u.String(), nil), "http://"+addr.String()+"/")
		require.NoError(t, err) // a plain request shows the 407 as its status
	}
	require.Equal(t, []string{ReasonProxy, ReasonProxy, ReasonProxy, ReasonProxy}, reasons)
	require.Zero(t, hits.Load())
}

func TestProxyCloseEndsTunnels(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	p, err := New(Config{Dev: true}).StartProxy(ctx)
	require.NoError(t, err)
	u, err := url.Parse(p.URL())
	require.NoError(t, err)
	c, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	auth := http.Request{Header: http.Header{}}
	pw, _ := u.User.Password()
	auth.SetBasicAuth(u.User.Username(), pw)
	_, err = io.WriteString(c, "CONNECT "+l.Addr().String()+" HTTP/1.1\r\nHost: x\r\nProxy-Authorization: "+auth.Header.Get("Authorization")+"\r\n\r\n")
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	require.NoError(t, err)
	require.Contains(t, string(buf[:n]), "200")

	cancel() // the context alone ends it
	_, err = io.Copy(io.Discard, c)
	_ = err // a reset and an end are both an ended tunnel
	_, err = far.Read(buf)
	require.Error(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = net.Dial("tcp", u.Host)
	require.Error(t, err, "the port is free again")
}

// Git resolves and connects by itself, so this is the proof that it cannot get round the guard.
func TestT25GitGoesThroughTheProxy(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	var hits int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits++
		http.NotFound(w, nil)
	}))
	t.Cleanup(s.Close)
	run := func(p *Proxy, target string) string {
		cmd := exec.CommandContext(t.Context(), git, "ls-remote", "--", target)
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
			"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=http.proxy", "GIT_CONFIG_VALUE_0=" + p.URL(),
			"GIT_CONFIG_KEY_1=http.followRedirects", "GIT_CONFIG_VALUE_1=false"}
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(out)
	}
	allowed := startProxy(t, New(Config{Dev: true, Hosts: map[string]string{"knot.test": s.Listener.Addr().String()}}))
	run(allowed, "http://knot.test/repo")
	require.Equal(t, 1, hits, "the request arrived by way of the proxy, for a name that only it knows")

	strict := startProxy(t, New(Config{}))
	out := run(strict, "https://"+s.Listener.Addr().String()+"/repo")
	require.Contains(t, out, "403")
	require.Equal(t, 1, hits)
}
