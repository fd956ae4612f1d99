package images

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"spindle/internal/netguard"
)

// maxDescription bounds what a registry may send that is not a layer: manifests have a few KiB.
const maxDescription = 8 << 20

// maxHops is how many redirects one request may take.
const maxHops = 5

// errRedirects is a registry that only ever redirects.
var errRedirects = errors.New("images: too many redirects")

// bounded is the transport below the registry library: it keeps plain http to this machine, bounds what comes, and makes
// a registry's wish to be left alone an error with its length.
type bounded struct {
	next http.RoundTripper
	dev  bool
}

// busyError is status 429, with what Retry-After says (RFC 9110, 10.2.3); zero where it says nothing.
type busyError struct{ wait time.Duration }

func (e *busyError) Error() string { return fmt.Sprintf("images: status 429, retry after %s", e.wait) }

// errTooLong says that a description did not end.
var errTooLong = errors.New("images: the registry's answer is too long")

// RoundTrip implements http.RoundTripper.
func (t bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !(t.dev && loopback(req.URL.Hostname())) {
		if req.Body != nil {
			_ = req.Body.Close() // RoundTrip must close it; the refusal is the error that counts
		}
		return nil, &netguard.DeniedError{Reason: netguard.ReasonScheme, Target: req.URL.Scheme}
	}
	// The library that asks has a rule of its own for redirects, and no end to them.
	hops := 0
	for r := req; r.Response != nil && r.Response.Request != nil; r = r.Response.Request {
		if hops++; hops > maxHops {
			return nil, errRedirects
		}
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusTooManyRequests {
		_ = res.Body.Close() // its words are no help beyond the status
		return nil, &busyError{wait: retryAfter(res.Header.Get("Retry-After"))}
	}
	if !strings.Contains(req.URL.Path, "/blobs/") && req.Response == nil {
		// Blobs, and what they redirect to, are bounded by the sizes that the manifest gives.
		res.Body = &short{ReadCloser: res.Body, left: maxDescription}
	}
	return res, nil
}

// short fails when more than left bytes come.
type short struct {
	io.ReadCloser
	left int64
}

func (s *short) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.left -= int64(n); s.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// retryAfter reads the header's form of seconds; dates are as good as nothing.
func retryAfter(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// loopback says that host, without a port, is this machine.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
