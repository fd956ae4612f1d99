package ingest

import (
	"context"
	"time"
)

// mostWanted is how many accounts a host of version 1 takes in its filter.
const mostWanted = 10_000

// wanted is the payload of options_update: it replaces the whole filter, and an empty list takes that part away.
type wanted struct {
	Collections []string `json:"wantedCollections"`
	DIDs        []string `json:"wantedDids"`
	MaxSize     int64    `json:"maxMessageSizeBytes"`
}

// hello tells whether the host is told whom to tell of, which it waits for.
func (s *Source) hello(e Endpoint) bool { return s.c.Wanted != nil && e.protocol.name == protocolV1 }

// filter tells the host whose records are wanted, at once and whenever the list has grown. A list that is too long for
// it is not told, and everything is sorted out here.
func (s *Source) filter(ctx context.Context, k *conn) {
	for {
		dids, changed := s.c.Wanted()
		if len(dids) > mostWanted {
			dids = nil
		}
		if dids == nil {
			dids = []string{}
		}
		update := struct {
			Type    string `json:"type"`
			Payload wanted `json:"payload"`
		}{"options_update", wanted{Collections: s.c.Collections, DIDs: dids, MaxSize: k.most}}
		if k.ws.SetWriteDeadline(s.c.Clock.Now().Add(10*time.Second)) != nil || k.ws.WriteJSON(update) != nil {
			_ = k.ws.Close() // the reading ends with it, and a new connection is made
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
