package obs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/internal/clock"
	"spindle/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoggerLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "INFO": 3, "Warn": 2} {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			l, err := obs.NewLogger(&b, format, level)
			require.NoError(t, err, level)
			l.Debug("m")
			l.Info("m")
			l.Warn("m")
			l.Error("m")
			require.Equal(t, want, strings.Count(b.String(), "\n"), "%s %s", format, level)
		}
	}
}

func TestLoggerFormats(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l, err := obs.NewLogger(&b, "json", "info")
	require.NoError(t, err)
	l.With("repo", "did:plc:a").Warn("fetch again", "n", 3, "err", io.ErrUnexpectedEOF)
	var got map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	_, err = time.Parse(time.RFC3339Nano, got["time"].(string))
	require.NoError(t, err)
	delete(got, "time")
	require.Equal(t, map[string]any{"level": "WARN", "msg": "fetch again", "repo": "did:plc:a", "n": 3.0, "err": "unexpected EOF"}, got)

	b.Reset()
	l, err = obs.NewLogger(&b, "text", "info")
	require.NoError(t, err)
	l.WithGroup("run").Info("started", "id", "a b")
	require.Regexp(t, `^time=\S+ level=INFO msg=started run\.id="a b"\n$`, b.String())
}

func TestLoggerRefuses(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"", "trace", "warning", "info+1", "-4", "0", " info"} {
		_, err := obs.NewLogger(io.Discard, "text", level)
		require.EqualError(t, err, fmt.Sprintf("log level %q is not debug, info, warn or error", level))
	}
	for _, format := range []string{"", "logfmt", "JSON", "yaml"} {
		_, err := obs.NewLogger(io.Discard, format, "info")
		require.EqualError(t, err, fmt.Sprintf("log format %q is not text or json", format))
	}
}

// Names and texts from outside cannot forge a record or reach the operator's terminal.
func TestB083LoggerEscapes(t *testing.T) {
	t.Parallel()
	const hostile = "x\ntime=2025-03-04 level=ERROR msg=forged\r\x1b[2J\x1b]8;;https://evil.example\x1b\\\x00\x9b"
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		l, err := obs.NewLogger(&b, format, "info")
		require.NoError(t, err)
		l.Info(hostile, "branch", hostile, hostile, "key", slog.Group(hostile, "a", 1), "err", fmt.Errorf("%s", hostile))
		out := b.String()
		require.Equal(t, 1, strings.Count(out, "\n"), format)
		require.NotContains(t, strings.TrimSuffix(out, "\n"), "\n")
		for _, c := range []string{"\r", "\x1b", "\x00"} {
			require.NotContains(t, out, c, format)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	start := time.Date(2025, 3, 4, 12, 0, 0, 0, time.UTC)
	c := clock.NewManual(start)
	h := obs.NewHealth(c)
	require.Empty(t, h.Components())
	h.Set("ingest", true, "connected")
	h.Set("engine", false, "no /dev/kvm")
	c.Advance(time.Minute)
	h.Set("ingest", true, "at cursor 7") // the same state: since the first moment
	h.Set("engine", true, "")            // another one: since now
	require.Equal(t, []obs.Component{
		{Name: "engine", OK: true, Since: start.Add(time.Minute)},
		{Name: "ingest", OK: true, Detail: "at cursor 7", Since: start},
	}, h.Components())
	c.Advance(time.Minute)
	h.Set("ingest", false, "connection refused")
	c.Advance(time.Minute)
	h.Set("ingest", false, "no such host") // the latest cause, since the first failure
	got := h.Components()
	require.Equal(t, obs.Component{Name: "ingest", Detail: "no such host", Since: start.Add(2 * time.Minute)}, got[1])
	got[1].OK = true
	require.False(t, h.Components()[1].OK, "what is handed out is a copy")
}

func TestHealthIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	h := obs.NewHealth(clock.Real{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				h.Set(fmt.Sprintf("part-%d", i), j%2 == 0, "x")
				for k, c := range h.Components() {
					if k > 8 || c.Name == "" {
						t.Error("an odd component", c)
					}
				}
			}
		})
	}
	all.Wait()
	require.Len(t, h.Components(), 8)
}

func get(t *testing.T, h http.Handler, header ...string) (*http.Response, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/metrics", nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

func TestMetricsOverHTTP(t *testing.T) {
	t.Parallel()
	m, other := obs.NewMetrics(), obs.NewMetrics()
	m.Refused("bad_signature")
	m.Refused("bad_signature")
	m.Refused("unknown_repo")
	m.Denied("address")
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "spindle_queue_depth", Help: "Jobs that wait."})
	require.NoError(t, m.Registerer().Register(own))
	require.ErrorAs(t, m.Registerer().Register(own), &prometheus.AlreadyRegisteredError{})
	own.Set(4)

	resp, text := get(t, m.Handler())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.True(t, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4"), resp.Header)
	for _, want := range []string{
		"# TYPE spindle_ingest_refused_total counter\n",
		`spindle_ingest_refused_total{kind="bad_signature"} 2` + "\n",
		`spindle_ingest_refused_total{kind="unknown_repo"} 1` + "\n",
		`spindle_egress_denied_total{reason="address"} 1` + "\n",
		"spindle_queue_depth 4\n", "\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
	} {
		require.Contains(t, text, want)
	}
	_, text = get(t, other.Handler())
	require.NotContains(t, text, "bad_signature", "another server's figures are its own")
	require.NotContains(t, text, "spindle_queue_depth")
}

// A collector that fails makes the scrape fail where it can be seen, and does not stop the server.
func TestMetricsOfABrokenCollector(t *testing.T) {
	t.Parallel()
	m := obs.NewMetrics()
	desc := prometheus.NewDesc("spindle_broken", "Cannot be read.", nil, nil)
	require.NoError(t, m.Registerer().Register(broken{desc}))
	resp, _ := get(t, m.Handler())
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(c chan<- *prometheus.Desc) { c <- b.desc }
func (b broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(b.desc, io.ErrUnexpectedEOF)
}
