package obs

import (
	"maps"
	"slices"
	"sync"
	"time"

	"spindle/internal/clock"
)

// Component is what one part of the server last said of itself.
type Component struct {
	Name   string
	OK     bool
	Detail string
	// Since is when it came into this state.
	Since time.Time
}

// Health holds the state of components. Make it with NewHealth; it is safe for concurrent use.
type Health struct {
	clock clock.Clock

	mu    sync.Mutex
	parts map[string]Component
}

// NewHealth returns a health that knows no component yet.
func NewHealth(c clock.Clock) *Health {
	return &Health{clock: c, parts: map[string]Component{}}
}

// Set notes the state of a component.
func (h *Health) Set(name string, ok bool, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, known := h.parts[name]
	c := Component{Name: name, OK: ok, Detail: detail, Since: h.clock.Now()}
	if known && old.OK == ok {
		c.Since = old.Since
	}
	h.parts[name] = c
}

// Components lists what is known, by name.
func (h *Health) Components() []Component {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.parts), func(a, b Component) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}
