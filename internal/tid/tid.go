// Package tid makes record keys of the atproto TID kind: 13 characters that sort by time.
//
// A Source hands out strictly increasing TIDs even when the wall clock steps back, which the ids of
// pipelines rely on (https://atproto.com/specs/tid).
package tid

import (
	"crypto/rand"
	"encoding/binary"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/internal/clock"
)

// Source makes TIDs. Make it with New; it is safe for concurrent use.
type Source struct {
	clock clock.Clock
	id    uint

	mu   sync.Mutex
	last int64 // microseconds of the TID handed out last
}

// New returns a source that reads c and carries a random 10-bit clock id, so that two sources on one
// clock do not collide.
func New(c clock.Clock) *Source {
	var b [2]byte
	// crypto/rand.Read never fails on the platforms that Go supports (it ends the process instead).
	_, _ = rand.Read(b[:])
	return &Source{clock: c, id: uint(binary.BigEndian.Uint16(b[:]) & 1023)}
}

// Next is the next TID, later than each one before it.
func (s *Source) Next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	us := s.clock.Now().UTC().UnixMicro()
	if us <= s.last {
		us = s.last + 1
	}
	s.last = us
	return syntax.NewTID(us, s.id).String()
}

// Seen tells the source of a TID made earlier (by a former process), so that those to come are later.
// Text that is no TID is ignored.
func (s *Source) Seen(t string) {
	p, err := syntax.ParseTID(t)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if us := p.Time().UnixMicro(); us > s.last {
		s.last = us
	}
}
