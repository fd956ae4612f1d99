package netguard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrTooLarge is returned by ReadLimited when a body is longer than its limit.
var ErrTooLarge = errors.New("netguard: body too large")

// ClientOptions shape one HTTP client.
type ClientOptions struct {
	// Timeout bounds a whole exchange, body included. Zero is 10 s; negative is none, for streams whose
	// caller bounds them by context.
	Timeout time.Duration
	// SameHostRedirects is how many redirects are followed; each must keep scheme and host, and is dialled
	// through the guard again. Zero follows none.
	SameHostRedirects int
}

// HTTPClient returns a client over the guarded dialer: no proxy from the environment, no cookies, no
// redirects unless asked, no transparent decompression (a compressed body counts as what it is), bounded
// response headers. Callers bound bodies with ReadLimited.
func (g *Guard) HTTPClient(o ClientOptions) *http.Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	t := &http.Transport{
		Proxy:                  nil,
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  max(o.Timeout, 0),
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    4,
		MaxConnsPerHost:        16,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport: &schemeGuard{guard: g, next: t},
		Timeout:   max(o.Timeout, 0),
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			return g.redirect(o.SameHostRedirects, req, via)
		},
	}
}

func (g *Guard) redirect(limit int, req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > limit || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		g.denied("redirect")
		return ErrRedirect
	}
	return nil
}

// schemeGuard refuses URLs that are not https (http too in development), carry a user part or have no
// host, and sends https to development hosts as http.
type schemeGuard struct {
	guard *Guard
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *schemeGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := s.guard.CheckURL(req.URL); err != nil {
		return nil, closeBody(req, err)
	}
	downgrade := req.URL.Scheme == "https" && s.guard.Plain(req.URL.Hostname())
	named := req.Header.Get("User-Agent") != "" || s.guard.userAgent == ""
	if downgrade || !named {
		// A RoundTripper must not change the request it was given.
		req = req.Clone(req.Context())
		if downgrade {
			req.URL.Scheme = "http"
		}
		if !named {
			req.Header.Set("User-Agent", s.guard.userAgent)
		}
	}
	return s.next.RoundTrip(req)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (s *schemeGuard) CloseIdleConnections() {
	if c, ok := s.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func closeBody(req *http.Request, err error) error {
	if req.Body != nil {
		return errors.Join(err, req.Body.Close())
	}
	return err
}

// CheckURL refuses a URL that no client of this guard may use: scheme other than https (http in
// development), a user part, no host. It does not resolve anything.
func (g *Guard) CheckURL(u *url.URL) error {
	if u.Scheme != "https" && (u.Scheme != "http" || !g.dev) {
		return g.deny("scheme", fmt.Sprintf("scheme %q", u.Scheme))
	}
	if u.User != nil {
		return g.deny("userinfo", "URL with a user part")
	}
	if u.Hostname() == "" {
		return g.deny("address", "URL without a host")
	}
	return nil
}

// ReadLimited reads r to its end and returns ErrTooLarge if that is more than limit bytes.
func ReadLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return b, nil
}
