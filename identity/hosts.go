package identity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"spindle/internal/clock"
)

const (
	maxHosts   = 4096
	firstRest  = 5 * time.Second // what a host is left alone for when it asks for less and does not say how long
	mostRest   = time.Hour
	queueStep  = 250 * time.Millisecond
	mostQueued = 30 * time.Second
)

// HostBusyError is a host that is not asked now: as many are at it as may be, or it asked to be left alone. It is
// an ErrBusy, hence temporary, and nothing was sent.
type HostBusyError struct {
	Host string
	// Wait is when to come again: as long as the host asked for, or about when it is this caller's turn.
	Wait time.Duration
}

// Error implements error.
func (e *HostBusyError) Error() string {
	return fmt.Sprintf("%v: %s is left alone for %s", ErrBusy, e.Host, e.Wait.Round(time.Millisecond))
}

// Is makes every HostBusyError an ErrBusy.
func (e *HostBusyError) Is(target error) bool { return target == ErrBusy }

// hosts knows how busy each host is and which asked for a rest.
type hosts struct {
	clock clock.Clock
	each  int // visits at a time

	mu sync.Mutex
	m  map[string]*hostState
}

type hostState struct {
	visits int
	turned int       // how many were turned away and are still to come
	until  time.Time // the end of the rest that the host asked for
}

func newHosts(c clock.Clock, each int) *hosts {
	return &hosts{clock: c, each: each, m: map[string]*hostState{}}
}

func (h *hosts) of(host string) *hostState {
	s := h.m[host]
	if s == nil {
		if len(h.m) >= maxHosts {
			h.shrink()
		}
		s = &hostState{}
		h.m[host] = s
	}
	return s
}

// shrink forgets hosts of which there is nothing to know, and if that is not enough, any that nobody is at.
func (h *hosts) shrink() {
	now := h.clock.Now()
	for k, s := range h.m {
		if s.visits == 0 && !s.until.After(now) {
			delete(h.m, k)
		}
	}
	for k, s := range h.m {
		if len(h.m) < maxHosts*3/4 {
			return
		}
		if s.visits == 0 {
			delete(h.m, k)
		}
	}
}

// resting is an error while host wants to be left alone.
func (h *hosts) resting(host string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.m[host]; s != nil {
		if wait := s.until.Sub(h.clock.Now()); wait > 0 {
			return &HostBusyError{Host: host, Wait: wait}
		}
	}
	return nil
}

// rest notes that host answered with 429, or with 503 and a time.
func (h *hosts) rest(host string, resp *http.Response) {
	now := h.clock.Now()
	d, said := retryAfter(resp.Header.Get("Retry-After"), now)
	if n, err := strconv.ParseInt(resp.Header.Get("RateLimit-Reset"), 10, 64); err == nil && !said {
		// What servers of the network send: the second at which the limit is lifted.
		d, said = max(0, time.Unix(n, 0).Sub(now)), true
	}
	if !said && resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	if !said {
		d = firstRest
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := now.Add(min(d, mostRest)); until.After(h.of(host).until) {
		h.of(host).until = until
	}
}

// retryAfter reads the header (RFC 9110, 10.2.3): seconds, or a date.
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}

// enter counts a visit in, or turns it away.
func (h *hosts) enter(host string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of(host)
	if s.visits < h.each {
		s.visits++
		s.turned = max(0, s.turned-1)
		return nil
	}
	s.turned++
	wait := min(time.Duration(1+s.turned/h.each)*queueStep, mostQueued)
	return &HostBusyError{Host: host, Wait: wait/2 + rand.N(wait/2)}
}

func (h *hosts) leave(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(host).visits--
}

// visit is one caller's work at hosts, which may be many requests: it is counted once at each.
type visit struct {
	mu   sync.Mutex
	at   map[string]bool
	undo []func()
}

type visitKey struct{}

// Visit begins a piece of work that may only take one of the few places at each host that it asks, so that one
// slow host never holds all workers: a host whose places are taken is a *HostBusyError, at once. The caller runs
// leave at the end. What is asked without a Visit is not counted.
func Visit(ctx context.Context) (_ context.Context, leave func()) {
	v := &visit{at: map[string]bool{}}
	return context.WithValue(ctx, visitKey{}, v), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, f := range v.undo {
			f()
		}
		v.undo = nil
	}
}

// come counts the visit of ctx, if there is one, in at host.
func (h *hosts) come(ctx context.Context, host string) error {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.at[host] {
		return nil
	}
	if err := h.enter(host); err != nil {
		return err
	}
	v.at[host] = true
	v.undo = append(v.undo, func() { h.leave(host) })
	return nil
}
