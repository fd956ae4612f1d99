package identity

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"spindle/internal/netguard"
)

var errBody = errors.New("identity: body cut off")

// documents is the transport for DID documents: it bounds bodies, and with dev sends what indigo asks of
// https://NAME.test to http://NAME.test.
type documents struct {
	next http.RoundTripper
	dev  bool
}

// RoundTrip implements http.RoundTripper.
func (d *documents) RoundTrip(req *http.Request) (*http.Response, error) {
	if d.dev && req.URL.Scheme == "https" && strings.HasSuffix(req.URL.Hostname(), ".test") {
		req = req.Clone(req.Context())
		req.URL.Scheme = "http"
	}
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	// A directory says 410 for a DID that was given up. It is as absent as one that never was.
	if resp.StatusCode == http.StatusGone {
		resp.StatusCode = http.StatusNotFound
	}
	resp.Body = &bounded{body: resp.Body, left: maxDocument}
	return resp, nil
}

// bounded fails once a body has brought more than left bytes.
type bounded struct {
	body io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, fmt.Errorf("%w: DID document", netguard.ErrTooLarge)
	}
	if err != nil && err != io.EOF {
		return n, fmt.Errorf("%w: %w", errBody, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *bounded) Close() error { return b.body.Close() }
