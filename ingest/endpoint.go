package ingest

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
)

// The names of the protocols in rows of cursors.
const (
	jetstreamSource = "jetstream"
	firehoseSource  = "firehose"
	protocolV1      = "v1"
	protocolV2      = "v2"
	protocolRepos   = "subscribeRepos"
)

// protocol is one way of telling record changes.
type protocol struct {
	source, name string
	// numbered positions are numbers of the host's own; others are times in microseconds.
	numbered bool
	// message is the type of websocket message that frames come in.
	message int
	// most bounds what is kept of one message, in bytes.
	most  int64
	parse func(msg []byte) (Frame, error)
}

// Endpoint is the place of one record stream: a host and the protocol that is spoken with it. A cursor belongs to
// both, and is never carried to another. Make it with ParseEndpoints.
type Endpoint struct {
	url      *url.URL
	protocol *protocol
}

// Host is the endpoint's host and port.
func (e Endpoint) Host() string { return e.url.Host }

// String is the endpoint's address without what a query may hold.
func (e Endpoint) String() string { return e.url.Scheme + "://" + e.url.Host + e.url.Path }

// ErrEndpoint is an address of no record stream.
var ErrEndpoint = errors.New("not the address of a record stream")

// ParseEndpoints reads a list of addresses with commas between them. The path says what is spoken: that of
// com.atproto.sync.subscribeRepos is the raw firehose, that of network.bsky.jetstream.subscribeEvents is version 2 of
// Jetstream, and every other is version 1.
func ParseEndpoints(list string) ([]Endpoint, error) {
	var out []Endpoint
	for _, text := range strings.Split(list, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "ws" && u.Scheme != "wss") {
			return nil, fmt.Errorf("%w: %q; it begins with wss:// or ws:// and names a host", ErrEndpoint, text)
		}
		e := Endpoint{url: u, protocol: protocolOf(u.Path)}
		for _, other := range out {
			if other.url.Host == u.Host && other.protocol.name == e.protocol.name {
				return nil, fmt.Errorf("%w: %q is named twice", ErrEndpoint, u.Host)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

func protocolOf(path string) *protocol {
	switch strings.TrimSuffix(path, "/") {
	case "/xrpc/com.atproto.sync.subscribeRepos":
		return &protocol{
			source: firehoseSource, name: protocolRepos, numbered: true, message: websocket.BinaryMessage,
			most: 6 << 20, parse: parseFirehose, // the specification allows 5 MB
		}
	case "/xrpc/network.bsky.jetstream.subscribeEvents":
		return &protocol{
			source: jetstreamSource, name: protocolV2, numbered: true, message: websocket.TextMessage,
			most: 2 << 20, parse: parseV2,
		}
	}
	return &protocol{source: jetstreamSource, name: protocolV1, message: websocket.TextMessage, most: 2 << 20, parse: parseV1}
}

// address is the endpoint with the filter and the position to begin at; 0 is live.
func (e Endpoint) address(from int64, collections []string, hello bool) string {
	u := *e.url
	q := u.Query()
	switch e.protocol.name {
	case protocolV1:
		for _, c := range collections {
			q.Add("wantedCollections", c)
		}
		q.Set("maxMessageSizeBytes", strconv.FormatInt(e.protocol.most, 10))
		if hello {
			q.Set("requireHello", "true")
		}
	case protocolV2:
		for _, c := range collections {
			q.Add("collections", c)
		}
	}
	if from > 0 {
		q.Set("cursor", strconv.FormatInt(from, 10))
	}
	u.RawQuery = q.Encode()
	return u.String()
}
