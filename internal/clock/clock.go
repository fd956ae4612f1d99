// Package clock is where the product's time comes from.
//
// Code that decides anything by time takes a Clock, so that tests can set the hour and so that no part
// reads the wall clock behind another's back. Durations are measured with the monotonic reading that
// time.Time carries; wall time is for people, tokens and ids.
package clock

import (
	"context"
	"sync"
	"time"
)

// Clock tells the time and waits.
type Clock interface {
	// Now is the present moment, with a monotonic reading where the platform has one.
	Now() time.Time
	// Sleep waits for d, or until ctx ends; then it returns the context's error.
	Sleep(ctx context.Context, d time.Duration) error
}

// Real is the machine's own clock. Its zero value is ready to use.
type Real struct{}

// Now implements Clock.
func (Real) Now() time.Time { return time.Now() }

// Sleep implements Clock.
func (Real) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Manual is a clock that moves only when told to. Make it with NewManual.
type Manual struct {
	mu      sync.Mutex
	now     time.Time
	waiters map[chan struct{}]time.Time
	slept   []time.Duration
}

// NewManual returns a manual clock that stands at t.
func NewManual(t time.Time) *Manual {
	return &Manual{now: t, waiters: map[chan struct{}]time.Time{}}
}

// Now implements Clock.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Sleep implements Clock: it returns once Advance has moved the clock past d from now.
func (m *Manual) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c := make(chan struct{})
	m.mu.Lock()
	m.slept = append(m.slept, d)
	m.waiters[c] = m.now.Add(d)
	m.mu.Unlock()
	select {
	case <-ctx.Done():
		m.mu.Lock()
		delete(m.waiters, c)
		m.mu.Unlock()
		return ctx.Err()
	case <-c:
		return nil
	}
}

// Advance moves the clock forward and wakes every sleeper whose time has come.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
	for c, at := range m.waiters {
		if !at.After(m.now) {
			delete(m.waiters, c)
			close(c)
		}
	}
}

// Waiting is how many sleepers there are.
func (m *Manual) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiters)
}

// Slept lists the durations asked of Sleep so far, in order.
func (m *Manual) Slept() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]time.Duration(nil), m.slept...)
}
