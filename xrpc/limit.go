package xrpc

import (
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"spindle/internal/clock"
)

// buckets is a token bucket for each key. It remembers so many keys only; the one not seen for longest is
// forgotten, which gives it a full bucket again.
type buckets struct {
	clock clock.Clock
	rate  rate.Limit
	burst int

	mu   sync.Mutex
	keys *lru.Cache[string, *rate.Limiter]
}

func newBuckets(c clock.Clock, perSecond float64, burst, remembered int) (*buckets, error) {
	keys, err := lru.New[string, *rate.Limiter](remembered)
	if err != nil {
		return nil, err
	}
	return &buckets{clock: c, rate: rate.Limit(perSecond), burst: burst, keys: keys}, nil
}

func (b *buckets) of(key string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.keys.Get(key)
	if !ok {
		l = rate.NewLimiter(b.rate, b.burst)
		b.keys.Add(key, l)
	}
	return l
}

// take takes a token and returns 0, or how long it takes until there is one.
func (b *buckets) take(key string) time.Duration {
	l, now := b.of(key), b.clock.Now()
	if l.AllowN(now, 1) {
		return 0
	}
	return b.until(l, now)
}

// wait is how long it takes until there is a token; it takes none.
func (b *buckets) wait(key string) time.Duration {
	l, now := b.of(key), b.clock.Now()
	if l.TokensAt(now) >= 1 {
		return 0
	}
	return b.until(l, now)
}

func (b *buckets) until(l *rate.Limiter, now time.Time) time.Duration {
	missing := math.Max(0, 1-l.TokensAt(now))
	return time.Duration(missing/float64(b.rate)*float64(time.Second)) + time.Millisecond
}

// slots counts open streams, in all and by address.
type slots struct {
	all, each int

	mu   sync.Mutex
	open int
	by   map[string]int
}

func newSlots(all, each int) *slots { return &slots{all: all, each: each, by: map[string]int{}} }

// take takes a slot, or tells that there is none.
func (s *slots) take(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.all || s.by[addr] >= s.each {
		return false
	}
	s.open++
	s.by[addr]++
	return true
}

// give gives a slot back.
func (s *slots) give(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.by[addr]--; s.by[addr] == 0 {
		delete(s.by, addr)
	}
}

// Address is what limits count the sender of r as.
func (s *Server) Address(r *http.Request) string { return s.address(r) }

// address is the client's address as limits count it: an IPv4 address or an IPv6 /64. Behind a proxy that
// is trusted it is the last address in X-Forwarded-For that is not a trusted proxy itself.
func (s *Server) address(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	addr := peer.Addr().Unmap().WithZone("")
	if s.proxied(addr) {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(hops) - 1; i >= 0; i-- {
			hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
			if err != nil {
				break
			}
			addr = hop.Unmap().WithZone("")
			if !s.proxied(addr) {
				break
			}
		}
	}
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// proxied tells whether addr is a trusted proxy.
func (s *Server) proxied(addr netip.Addr) bool {
	for _, p := range s.c.Proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
