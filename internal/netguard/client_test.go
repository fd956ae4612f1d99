package netguard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, c *http.Client, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { require.NoError(t, resp.Body.Close()) }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestT26Redirects(t *testing.T) {
	t.Parallel()
	var hits int
	trapped := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ }))
	t.Cleanup(trapped.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/hop/%d", &n); err == nil {
			if n > 0 {
				http.Redirect(w, r, fmt.Sprintf("/hop/%d", n-1), http.StatusFound)
			}
			return
		}
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	}))
	t.Cleanup(s.Close)
	g := New(Config{Dev: true})

	none := g.HTTPClient(ClientOptions{})
	code, err := get(t, none, s.URL+"/hop/0")
	require.NoError(t, err)
	require.Equal(t, 200, code)
	_, err = get(t, none, s.URL+"/hop/1")
	require.Equal(t, ReasonRedirect, reasonOf(err), "no redirects unless asked for")

	three := g.HTTPClient(ClientOptions{Redirects: 3})
	_, err = get(t, three, s.URL+"/hop/3")
	require.NoError(t, err)
	_, err = get(t, three, s.URL+"/hop/4")
	require.Equal(t, ReasonRedirect, reasonOf(err))

	for _, to := range []string{trapped.URL, "https://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "//169.254.169.254/",
		"http://169.254.169.254/latest/meta-data/", strings.Replace(s.URL, "http:", "https:", 1), "http://localhost:1/", "ftp://x/"} {
		_, err = get(t, three, s.URL+"/?to="+to)
		require.ErrorIs(t, err, ErrDenied, to)
	}
	require.Zero(t, hits)
}

func TestT24SchemesAndEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:9")
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)

	dev := New(Config{Dev: true, Hosts: map[string]string{"a.test": strings.TrimPrefix(s.URL, "http://")}}).HTTPClient(ClientOptions{})
	_, err := get(t, dev, "http://a.test/")
	require.NoError(t, err, "no proxy from the environment")
	for _, u := range []string{"ftp://a.test/", "file:///etc/passwd", "http://user:pw@a.test/"} {
		_, err = get(t, dev, u)
		require.ErrorIs(t, err, ErrDenied, u)
		require.NotContains(t, err.Error(), "pw")
	}

	strict := New(Config{}).HTTPClient(ClientOptions{})
	for _, u := range []string{s.URL, "http://example.com:443/", "http://example.com/"} {
		_, err = get(t, strict, u)
		require.Equal(t, ReasonScheme, reasonOf(err), u)
	}
	_, err = get(t, strict, "https://127.0.0.1/")
	require.Equal(t, ReasonAddress, reasonOf(err))
	_, err = get(t, strict, "https://example.com:8443/")
	require.Equal(t, ReasonPort, reasonOf(err))
}

func TestReadLimited(t *testing.T) {
	t.Parallel()
	b, err := ReadLimited(strings.NewReader("12345"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(b))
	_, err = ReadLimited(strings.NewReader("123456"), 5)
	require.ErrorIs(t, err, ErrTooLarge)
}

func FuzzUsualHost(f *testing.F) {
	for _, s := range append([]string{"example.com", "xn--p1ai.example", "127.1", "0x7f.1"}, forbidden...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !usualHost(host) {
			return
		}
		if _, err := netip.ParseAddr(host); err == nil {
			return
		}
		if strings.ContainsAny(host, "@/#?%:\\ \x00\t\r\n[]") {
			t.Fatalf("usual host with a delimiter: %q", host)
		}
	})
}
