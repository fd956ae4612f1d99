package ingest

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stats are figures of the record streams since the start.
type Stats struct {
	// Seen counts frames, Kept the hints that were made of them.
	Seen, Kept int64
	// Lag is how far behind the present the last frame was when it came.
	Lag time.Duration
	// Host and Protocol are what is read now; both are empty while nothing is.
	Host, Protocol string
	// Gaps is how many gaps stand.
	Gaps int64
}

// stats counts. The zero value is ready to use.
type stats struct {
	seen, kept, gaps atomic.Int64
	lag              atomic.Int64 // of the last frame that told a time, in nanoseconds

	mu             sync.Mutex
	host, protocol string
}

func (s *stats) heard(f Frame, now time.Time) {
	s.seen.Add(1)
	if f.TimeUS > 0 {
		s.lag.Store(max(int64(now.Sub(time.UnixMicro(f.TimeUS))), 0))
	}
}

// Stats is what the record streams brought so far.
func (in *Ingest) Stats() Stats {
	s := &in.stats
	out := Stats{Seen: s.seen.Load(), Kept: s.kept.Load(), Gaps: s.gaps.Load(), Lag: time.Duration(s.lag.Load())}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Host, out.Protocol = s.host, s.protocol
	return out
}

// state notes a change of the connection.
func (in *Ingest) state(e Endpoint, up bool, detail string) {
	in.stats.mu.Lock()
	in.stats.host, in.stats.protocol = "", ""
	if up {
		in.stats.host, in.stats.protocol = e.Host(), e.protocol.name
	}
	in.stats.mu.Unlock()
	in.c.Health(streamPart, up, e.Host()+" ("+e.protocol.name+"): "+detail)
}
