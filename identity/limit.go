package identity

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// buckets is a bounded set of token buckets, one for each key (a DID, a host's domain).
type buckets struct {
	every time.Duration // one token comes back in this time
	burst int
	max   int // keys remembered

	mu  sync.Mutex
	set map[string]*rate.Limiter
}

func newBuckets(every time.Duration, burst, max int) *buckets {
	return &buckets{every: every, burst: burst, max: max, set: map[string]*rate.Limiter{}}
}

// allow takes a token of key's bucket, if there is one at the time now.
func (b *buckets) allow(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.set[key]
	if !ok {
		if len(b.set) >= b.max {
			b.shrink(now)
		}
		l = rate.NewLimiter(rate.Every(b.every), b.burst)
		b.set[key] = l
	}
	return l.AllowN(now, 1)
}

// shrink forgets the buckets that are full again, which changes nothing, and if that is not enough, any:
// a flood of keys must cost memory no more than it gains requests.
func (b *buckets) shrink(now time.Time) {
	for k, l := range b.set {
		if l.TokensAt(now) >= float64(b.burst) {
			delete(b.set, k)
		}
	}
	for k := range b.set {
		if len(b.set) < b.max*3/4 {
			return
		}
		delete(b.set, k)
	}
}
