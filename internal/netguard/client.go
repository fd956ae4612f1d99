package netguard

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ClientOptions shape one HTTP client. The zero value is a client for small API calls.
type ClientOptions struct {
	// Timeout bounds a whole exchange, reading the body included. Zero means 15 s; negative means none,
	// for streams that the caller bounds by context.
	Timeout time.Duration
	// Redirects is how many redirects to follow, and only to the same scheme and host. Zero means none:
	// a redirect is then an error.
	Redirects int
	// HeaderTimeout bounds the wait for the head of an answer. Zero means 30 s.
	HeaderTimeout time.Duration
	// MaxConnsPerHost bounds connections to one host. Zero means 8.
	MaxConnsPerHost int
}

// HTTPClient returns a client whose every connection goes through the guard. It knows no proxy, no
// cookies and no content decoding, so a body has as many bytes as were sent. Read bodies with ReadLimited.
func (g *Guard) HTTPClient(o ClientOptions) *http.Client {
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Timeout < 0 {
		o.Timeout = 0
	}
	if o.MaxConnsPerHost <= 0 {
		o.MaxConnsPerHost = 8
	}
	next := g.transport(o.MaxConnsPerHost)
	if o.HeaderTimeout > 0 {
		next.ResponseHeaderTimeout = o.HeaderTimeout
	}
	return &http.Client{
		Transport:     &transport{g: g, next: next},
		Timeout:       o.Timeout,
		CheckRedirect: g.checkRedirect(o.Redirects),
	}
}

func (g *Guard) transport(perHost int) *http.Transport {
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            g.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    g.cfg.Timeout,
		ResponseHeaderTimeout:  30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    2,
		MaxConnsPerHost:        perHost,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

func (g *Guard) checkRedirect(max int) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		first := via[0].URL
		if len(via) > max || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
			return g.deny(ReasonRedirect, req.URL.Host)
		}
		return nil
	}
}

// transport keeps requests to https (and http with Dev) before anything is dialled: port 443 alone would
// still let a plain request out.
type transport struct {
	g    *Guard
	next *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ok := req.URL.Scheme == "https" || req.URL.Scheme == "http" && t.g.cfg.Dev
	if !ok || req.URL.User != nil {
		if req.Body != nil {
			_ = req.Body.Close() // RoundTrip must close it; the refusal is the error that counts
		}
		if !ok {
			return nil, t.g.deny(ReasonScheme, req.URL.Scheme)
		}
		return nil, t.g.deny(ReasonHost, "userinfo")
	}
	return t.next.RoundTrip(req)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the connections.
func (t *transport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// ReadLimited reads r to its end, or fails with ErrTooLarge once more than max bytes have come.
func ReadLimited(r io.Reader, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, fmt.Errorf("netguard: read body: %w", err)
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, max)
	}
	return b, nil
}

// reasonOf is the reason of the refusal inside err, or "" if err is not one.
func reasonOf(err error) string {
	var d *DeniedError
	if errors.As(err, &d) {
		return d.Reason
	}
	return ""
}
