package knot

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"spindle/internal/clock"
	"spindle/internal/tid"
)

const (
	pingEvery    = 30 * time.Second
	writeTimeout = 5 * time.Second
	refUpdate    = "sh.tangled.git.refUpdate"
)

// frame is one message of the older generation's event stream.
type frame struct {
	Rkey  string          `json:"rkey"`
	NSID  string          `json:"nsid"`
	Event json.RawMessage `json:"event"`

	created int64 // nanoseconds, what cursors compare with
}

// events is the stream at /events?cursor=: what is later than the cursor (unix nanoseconds, exclusive),
// then what happens. Without a cursor it begins with the present.
type events struct {
	clock clock.Clock
	tids  *tid.Source

	mu   sync.Mutex
	log  []frame
	more chan struct{}
}

// push adds an event.
func (e *events) push(nsid string, event any) {
	text, err := json.Marshal(event)
	if err != nil {
		return // callers pass maps of plain values only
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.clock.Now().UnixNano()
	if n := len(e.log); n > 0 && at <= e.log[n-1].created {
		at = e.log[n-1].created + 1
	}
	e.log = append(e.log, frame{Rkey: e.tids.Next(), NSID: nsid, Event: text, created: at})
	close(e.more)
	e.more = make(chan struct{})
}

// ForgeEvent adds an event to the older stream that no push made.
func (k *Knot) ForgeEvent(nsid string, event any) { k.events.push(nsid, event) }

// refUpdate is p as the older knots tell it.
func (k *Knot) refUpdate(p Push, r *Repo) (string, any) {
	return refUpdate, map[string]any{
		"$type": refUpdate, "ref": p.Ref, "committerDid": p.Actor.String(), "repoDid": r.Owner.String(),
		"repoName": r.Name, "oldSha": p.OldSHA, "newSha": p.NewSHA,
		"meta": map[string]any{
			"isDefaultRef": p.Ref == "refs/heads/"+r.DefaultBranch,
			"commitCount":  map[string]any{"byEmail": []any{}},
		},
	}
}

func (e *events) place(cursor int64) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range e.log {
		if f.created > cursor {
			return i
		}
	}
	return len(e.log)
}

func (e *events) end() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.log)
}

func (e *events) next(place int) (frame, bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if place < len(e.log) {
		return e.log[place], true, nil
	}
	return frame{}, false, e.more
}

// ServeHTTP answers the websocket.
func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	place := e.end()
	if text := r.URL.Query().Get("cursor"); text != "" {
		cursor, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			http.Error(w, "invalid cursor", http.StatusBadRequest)
			return
		}
		place = e.place(cursor)
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	var reading sync.WaitGroup
	gone := make(chan struct{})
	reading.Go(func() {
		defer close(gone)
		conn.SetReadLimit(4096)
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer func() { _ = conn.Close() }()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		f, ok, more := e.next(place)
		if ok {
			place++
			// Socket deadlines are the machine's time, whatever clock the events have.
			if conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil || conn.WriteJSON(f) != nil {
				return
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-gone:
			return
		case <-more:
		case <-ping.C:
			if conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		}
	}
}
