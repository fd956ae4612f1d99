package jetstream

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"spindle/internal/clock"
)

// Event is one event as it stands on the wire.
type Event struct {
	DID      string    `json:"did"`
	TimeUS   int64     `json:"time_us"`
	Kind     string    `json:"kind"` // commit, identity, account; sync is told in version 2 only
	Commit   *Commit   `json:"commit,omitempty"`
	Identity *Identity `json:"identity,omitempty"`
	Account  *Account  `json:"account,omitempty"`
	Sync     *Sync     `json:"-"`
}

// Sync says that a repository is in a state that its commits do not lead to.
type Sync struct{ Rev string }

// Commit is a record operation.
type Commit struct {
	Rev        string          `json:"rev"`
	Operation  string          `json:"operation"` // create, update, delete
	Collection string          `json:"collection"`
	Rkey       string          `json:"rkey"`
	Record     json.RawMessage `json:"record,omitempty"`
	CID        string          `json:"cid,omitempty"`
}

// Identity says that a DID document or a handle may have changed.
type Identity struct {
	DID    string `json:"did"`
	Handle string `json:"handle,omitempty"`
	Seq    int64  `json:"seq"`
	Time   string `json:"time"`
}

// Account says whether an account is active.
type Account struct {
	Active bool   `json:"active"`
	DID    string `json:"did"`
	Seq    int64  `json:"seq"`
	Status string `json:"status,omitempty"`
	Time   string `json:"time"`
}

// entry is an event with its encoding.
type entry struct {
	Event
	text []byte
	// number is the position in version 2, from 1.
	number int64
}

// Config makes a Stream.
type Config struct {
	// Clock numbers the events. Required.
	Clock clock.Clock
	// Ping is the time between pings to a subscriber. Zero means 30 s, as the public servers have it.
	Ping time.Duration
}

// Stream is the log and its subscribers. Make it with New; it is safe for concurrent use.
type Stream struct {
	clock clock.Clock
	ping  time.Duration

	mu       sync.Mutex
	log      []entry
	dropped  int // entries that Forget took from the front
	last     int64
	seq      int64
	number   int64
	offset   time.Duration
	more     chan struct{} // closed and replaced when anything below the lock changed
	faults   Faults
	connects []Connect
	wires    map[*wire]struct{}
}

// New returns an empty stream.
func New(c Config) *Stream {
	if c.Ping <= 0 {
		c.Ping = 30 * time.Second
	}
	return &Stream{clock: c.Clock, ping: c.Ping, more: make(chan struct{}), wires: map[*wire]struct{}{}}
}

// Append numbers e and adds it to the log. A TimeUS that is set stays, which is how a test makes history
// or a far future; the numbers after it go on from the clock.
func (s *Stream) Append(e Event) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.TimeUS == 0 {
		e.TimeUS = s.clock.Now().Add(s.offset).UnixMicro()
		if e.TimeUS <= s.last {
			e.TimeUS = s.last + 1
		}
		s.last = e.TimeUS
	}
	s.seq++
	at := time.UnixMicro(e.TimeUS).UTC().Format("2006-01-02T15:04:05.000Z")
	if e.Identity != nil {
		e.Identity.Seq, e.Identity.Time = s.seq, at
	}
	if e.Account != nil {
		e.Account.Seq, e.Account.Time = s.seq, at
	}
	text, err := json.Marshal(e)
	if err != nil {
		return 0, fmt.Errorf("encode an event of %s: %w", e.DID, err)
	}
	s.number++
	s.log = append(s.log, entry{e, text, s.number})
	s.wake()
	return e.TimeUS, nil
}

// wake tells the subscribers to look again. The caller holds the lock.
func (s *Stream) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

// Events is a copy of the log.
func (s *Stream) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Event, len(s.log))
	for i, e := range s.log {
		out[i] = e.Event
	}
	return out
}

// place finds where a subscriber with cursor starts, as a count from the first event ever.
func (s *Stream) place(cursor int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.dropped + len(s.log)
	now := s.clock.Now().Add(s.offset).UnixMicro()
	if cursor <= 0 || cursor > now {
		return end
	}
	for i, e := range s.log {
		if e.TimeUS >= cursor {
			return s.dropped + i
		}
	}
	return end
}

// next returns the entry at place, moving place over what was forgotten, or the channel to wait on.
func (s *Stream) next(place *int) (entry, Faults, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *place < s.dropped {
		*place = s.dropped
	}
	if s.faults.Silence || *place >= s.dropped+len(s.log) {
		return entry{}, s.faults, false, s.more
	}
	e := s.log[*place-s.dropped]
	*place++
	return e, s.faults, true, nil
}
