package jetstream

import (
	"encoding/json"
	"time"
)

// Faults is how the stream misbehaves towards all its subscribers. The zero value is an honest stream.
type Faults struct {
	// Silence holds every event back; pings are sent and answered. The events come when it is lifted.
	Silence bool
	// Dead sends nothing at all and answers no ping, with the socket open.
	Dead bool
	// Delay is the wait before each event.
	Delay time.Duration
	// Drop says which events are never sent. It is called from many goroutines.
	Drop func(Event) bool
	// Duplicate says which events are sent twice.
	Duplicate func(Event) bool
	// Reorder sends events in groups of this many, each group from the last to the first; a group that is
	// not full goes out when the log ends. Less than two: in order.
	Reorder int
	// CutAfter closes each connection abruptly, without a close frame, after this many events. Zero: off.
	CutAfter int
}

// SetFaults replaces the faults, at once for open connections too.
func (s *Stream) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
	s.wake()
}

// current is a copy of the faults.
func (s *Stream) current() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Forge adds a commit event that no repository made: the shape is right, the record is nowhere.
func (s *Stream) Forge(did, operation, collection, rkey string, record any) (int64, error) {
	e := Event{DID: did, Kind: "commit", Commit: &Commit{
		Rev: "3zzzzzzzzzzz2", Operation: operation, Collection: collection, Rkey: rkey,
	}}
	if operation != "delete" {
		text, err := json.Marshal(record)
		if err != nil {
			return 0, err
		}
		e.Commit.Record = text
		e.Commit.CID = "bafyreidqpc7si3dbimffi64lz3xsx2qt45ip7rpna2qpslcddp23itjjzm"
	}
	return s.Append(e)
}

// Raw sends text as it is to every subscriber that is connected now; it does not enter the log.
func (s *Stream) Raw(text []byte) {
	s.mu.Lock()
	wires := make([]*wire, 0, len(s.wires))
	for w := range s.wires {
		wires = append(wires, w)
	}
	s.mu.Unlock()
	for _, w := range wires {
		_ = w.text(text) // one that left is no matter
	}
}

// Forget drops all events before the time, as retention does: an older cursor then starts at the oldest
// event that is left, and nobody is told.
func (s *Stream) Forget(before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.log) && s.log[n].TimeUS < before {
		n++
	}
	s.log = append([]entry(nil), s.log[n:]...)
	s.dropped += n
}

// Renumber drops the whole log and counts on from the clock moved by offset, as a server does that was
// set up anew: with a negative offset the cursors of its subscribers lie in its future.
func (s *Stream) Renumber(offset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += len(s.log)
	s.log = nil
	s.offset = offset
	s.last, s.number = 0, 0
}

// Connect is one subscription as it was asked for.
type Connect struct {
	Time  time.Time
	Query string
}

// Connects lists every subscription so far, oldest first.
func (s *Stream) Connects() []Connect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Connect(nil), s.connects...)
}

// Subscribers is how many are connected now.
func (s *Stream) Subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wires)
}

// Cut closes every connection abruptly, without a close frame, and says how many there were.
func (s *Stream) Cut() int {
	s.mu.Lock()
	wires := make([]*wire, 0, len(s.wires))
	for w := range s.wires {
		wires = append(wires, w)
	}
	s.mu.Unlock()
	for _, w := range wires {
		w.cut()
	}
	return len(wires)
}
