package ingest

import (
	"context"
	"slices"
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

// refilter is the least time between two looks at whom to tell of.
const refilter = time.Second

// filter tells the host whose records are wanted, at once and whenever the list is another. One that is too long for the
// host is not told, and everything is sorted out here.
func (s *Source) filter(ctx context.Context, k *conn) {
	var sent []string
	for first := true; ; {
		dids, changed, err := s.c.Wanted(ctx)
		switch {
		case err != nil:
			s.c.Log.Error("read whom to follow", "err", err)
		case first || !slices.Equal(dids, sent):
			if s.update(k, dids) != nil {
				_ = k.ws.Close() // the reading ends with it, and a new connection is made
				return
			}
			first, sent = false, dids
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if s.c.Clock.Sleep(ctx, refilter) != nil {
			return
		}
	}
}

func (s *Source) update(k *conn, dids []string) error {
	if len(dids) > mostWanted {
		dids = nil
	}
	if err := k.ws.SetWriteDeadline(s.c.Clock.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	return k.ws.WriteJSON(struct {
		Type    string `json:"type"`
		Payload wanted `json:"payload"`
	}{"options_update", wanted{Collections: s.c.Collections, DIDs: append([]string{}, dids...), MaxSize: k.most}})
}
