package jetstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// PathV2 is where version 2 is served.
const PathV2 = "/xrpc/network.bsky.jetstream.subscribeEvents"

const payload = "network.bsky.jetstream.subscribeEvents#"

// timesFrom is the least cursor of version 2 that is a time in microseconds, and no number.
const timesFrom = 1_000_000_000_000_000

// messageV2 is one message of version 2.
type messageV2 struct {
	Type    string    `json:"$type"`
	Payload payloadV2 `json:"payload"`
}

type payloadV2 struct {
	Type       string          `json:"$type"`
	Seq        int64           `json:"seq,omitempty"`
	DID        string          `json:"did,omitempty"`
	Time       string          `json:"time,omitempty"`
	Rev        string          `json:"rev,omitempty"`
	Operation  string          `json:"operation,omitempty"`
	Collection string          `json:"collection,omitempty"`
	Rkey       string          `json:"rkey,omitempty"`
	Record     json.RawMessage `json:"record,omitempty"`
	CID        string          `json:"cid,omitempty"`
	Handle     string          `json:"handle,omitempty"`
	Active     *bool           `json:"active,omitempty"`
	Status     string          `json:"status,omitempty"`
	Name       string          `json:"name,omitempty"`
}

// textV2 is an event as version 2 has it.
func textV2(e entry) ([]byte, error) {
	p := payloadV2{
		Type: payload + e.Kind, Seq: e.number, DID: e.DID, Time: time.UnixMicro(e.TimeUS).UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	switch {
	case e.Commit != nil:
		c := e.Commit
		p.Rev, p.Operation, p.Collection, p.Rkey, p.Record, p.CID = c.Rev, c.Operation, c.Collection, c.Rkey, c.Record, c.CID
	case e.Identity != nil:
		p.Handle = e.Identity.Handle
	case e.Account != nil:
		p.Active, p.Status = &e.Account.Active, e.Account.Status
	case e.Sync != nil:
		p.Rev = e.Sync.Rev
	}
	b, err := json.Marshal(messageV2{"message", p})
	if err != nil {
		return nil, fmt.Errorf("encode an event of %s: %w", e.DID, err)
	}
	return b, nil
}

// tell sends one event in the subscriber's version.
func (c *subscriber) tell(e entry) error {
	text := e.text
	if c.v2 {
		var err error
		if text, err = textV2(e); err != nil {
			return err
		}
	}
	return c.wire.text(text)
}

// serveV2 answers a subscription of version 2. A number before what is kept is refused before the stream begins, a
// time before it is told in the first message.
func (s *Stream) serveV2(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, err := newFilter(options{WantedCollections: q["collections"], WantedDIDs: q["dids"]})
	var cursor int64
	if text := q.Get("cursor"); text != "" && err == nil {
		cursor, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		refuse(w, "InvalidRequest", err.Error())
		return
	}
	place, floor := s.placeV2(cursor)
	if cursor > 0 && cursor < timesFrom && cursor < floor {
		refuse(w, "CursorTooOld", fmt.Sprintf("the oldest event is %d", floor))
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = conn.Close() }()
	sub := &subscriber{stream: s, wire: &wire{conn: conn}, v2: true, filter: f, hello: make(chan struct{})}
	close(sub.hello)
	s.join(sub.wire, r.URL.RawQuery)
	defer s.leave(sub.wire)
	sub.run(r.Context(), place)
}

func refuse(w http.ResponseWriter, name, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": name, "message": text}) // a client that left is no matter
}

// placeV2 is place for a cursor of version 2. floor is the number of the oldest event.
func (s *Stream) placeV2(cursor int64) (place int, floor int64) {
	if cursor >= timesFrom {
		return s.place(cursor), 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	floor = s.number + 1
	if len(s.log) > 0 {
		floor = s.log[0].number
	}
	if cursor <= 0 || cursor > s.number {
		return s.dropped + len(s.log), floor
	}
	i := slices.IndexFunc(s.log, func(e entry) bool { return e.number >= cursor })
	if i < 0 {
		i = len(s.log)
	}
	return s.dropped + i, floor
}
