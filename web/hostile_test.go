package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

// long is a world with one ended workflow whose log is far larger than what sockets hold.
func long(t *testing.T) (*world, string) {
	t.Helper()
	return logged(t, 3000)
}

// logged is a world with one ended workflow whose log has so many lines of 4000 bytes.
func logged(t *testing.T, n int) (*world, string) {
	t.Helper()
	w := newWorld(t)
	p := w.build(1, "long", pipeline.Passed)
	w.put(p)
	lines := make([]string, n)
	for i := range lines {
		lines[i] = strings.Repeat("x", 4000)
	}
	require.NoError(t, w.write(t, p.Workflows[0], lines...).Close())
	return w, "/p/" + string(p.ID) + "/" + p.Workflows[0].Name + "?raw=1"
}

// stall asks for path and reads nothing of the answer.
func stall(t *testing.T, s *httptest.Server, path, client string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nX-Client: %s\r\n\r\n", path, client)
	require.NoError(t, err)
	return c
}

func ask(t *testing.T, s *httptest.Server, method, path string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res
}

func byHeader(c *Config) { c.Client = func(r *http.Request) string { return r.Header.Get("X-Client") } }

func TestT35StalledDownloadsAreBoundedAndCut(t *testing.T) {
	t.Parallel()
	w, path := long(t)
	_, s := w.serve(t, byHeader, func(c *Config) {
		c.PagesPerClient, c.MaxPages, c.SendWithin = 2, 3, 4*time.Second
	})
	stalled := stall(t, s, path, "mallory")
	_, err := bufio.NewReader(stalled).ReadString('\n') // it has begun
	require.NoError(t, err)
	stall(t, s, path, "mallory")
	require.Eventually(t, func() bool {
		res := ask(t, s, "GET", "/", "X-Client", "mallory")
		return res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != ""
	}, 5*time.Second, 5*time.Millisecond, "two downloads that nobody reads are all that one client may have")
	require.Equal(t, http.StatusOK, ask(t, s, "GET", "/", "X-Client", "alice").StatusCode, "others are served")
	require.Eventually(t, func() bool {
		return ask(t, s, "GET", "/", "X-Client", "mallory").StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond, "who does not read is cut, and the place is free again")
}

func TestDownloadThatIsReadSlowlyIsWhole(t *testing.T) {
	t.Parallel()
	const within = 500 * time.Millisecond
	w, path := long(t)
	_, s := w.serve(t, func(c *Config) { c.SendWithin = within })
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, slow{res.Body, began.Add(2*within + within/4)}, make([]byte, 128<<10))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Greater(t, n, int64(3000*4000))
	require.Greater(t, time.Since(began), 2*within, "it took longer than one piece may")
}

// slow takes a pause before each read, until a moment.
type slow struct {
	io.Reader
	until time.Time
}

func (s slow) Read(b []byte) (int, error) {
	if time.Now().Before(s.until) {
		time.Sleep(5 * time.Millisecond) // a slow line, not a synchronisation
	}
	return s.Reader.Read(b)
}

func TestT45EveryRouteHasItsHeaders(t *testing.T) {
	t.Parallel()
	w, raw := logged(t, 3)
	h, s := w.serve(t)
	var asset string
	for name := range h.assets {
		asset = "/_assets/" + name
	}
	page := strings.TrimSuffix(raw, "?raw=1")
	for _, path := range []string{
		"/", "/index.json", page, page + ".json", raw, asset, "/r/" + did("hello"), "/r/" + did("hello") + "/badge.svg",
		"/nothing", "/p/..%2f..%2fspindle.key", "/p/%2e%2e/%2e%2e?raw=1", "/_assets/..%2f..%2fgo.mod", "/_assets/", "/r/%0d%0aX-Evil:%201",
		page + "?attempt=99999999999999999999", page + "?attempt=-1", page + "?from=9223372036854775807",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "TRACE", "OPTIONS"} {
			res := ask(t, s, method, path, "Origin", "https://evil.example", "Cookie", "theme=<script>")
			h := res.Header
			require.Less(t, res.StatusCode, 500, "%s %s", method, path)
			require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'", "%s %s", method, path)
			require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), "%s %s", method, path)
			require.Empty(t, h.Get("Access-Control-Allow-Origin"), "pages of elsewhere read nothing: %s %s", method, path)
			require.Empty(t, h.Get("X-Evil"))
			require.NotContains(t, h.Get("Set-Cookie"), "script")
			if method == "POST" || method == "TRACE" || method == "OPTIONS" {
				require.GreaterOrEqual(t, res.StatusCode, 300, "%s %s", method, path)
			}
		}
	}
	res := ask(t, s, "GET", raw)
	require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
	require.Regexp(t, `^attachment; filename="[A-Za-z0-9_-]+\.txt"$`, res.Header.Get("Content-Disposition"))
}

func TestT46BackLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, back := range []string{
		"//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example", "/a\r\nX-Evil: 1", "javascript:alert(1)", "", "evil", "/" + strings.Repeat("a", 3000),
	} {
		require.Equal(t, "/", local(back), "%q", back)
	}
	require.Equal(t, "/p/3lx2?from=1", local("/p/3lx2?from=1"))
}

func TestB037WorkflowNamesHaveTheirPages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.json", "con", "%2e%2e", "a b", "x?raw=1", "a/b", "ü#x"} {
		w := newWorld(t)
		p := w.build(1, "names", pipeline.Passed)
		p.Workflows[0].Name = name
		w.put(p)
		require.NoError(t, w.write(t, p.Workflows[0]).Close(), name)
		_, s := w.serve(t)
		at := workflowURL(p.ID, name)
		res := ask(t, s, "GET", at)
		require.Equal(t, http.StatusOK, res.StatusCode, name)
		require.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"), name)
		require.Equal(t, "application/json; charset=utf-8", ask(t, s, "GET", at+".json").Header.Get("Content-Type"), name)
		require.Equal(t, "text/plain; charset=utf-8", ask(t, s, "GET", at+"?raw=1").Header.Get("Content-Type"), name)
	}
}
