package web

import (
	"context"
	"sync"
	"time"

	"spindle/internal/clock"
)

const (
	maxNames   = 4096
	nameAge    = 10 * time.Minute
	nameWait   = 10 * time.Second
	nameAtOnce = 4
)

// names remembers handles. A page shows what is known at the moment; what is not is looked up behind it.
type names struct {
	ctx   context.Context // of the whole package
	wg    *sync.WaitGroup
	from  Names
	clock clock.Clock
	slots chan struct{}

	mu    sync.Mutex
	known map[string]name
}

type name struct {
	handle string
	at     time.Time
	asking bool
}

func newNames(ctx context.Context, wg *sync.WaitGroup, from Names, c clock.Clock) *names {
	return &names{ctx: ctx, wg: wg, from: from, clock: c, slots: make(chan struct{}, nameAtOnce), known: map[string]name{}}
}

// handle is the handle of did as far as it is known now.
func (n *names) handle(did string) string {
	if n.from == nil || did == "" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	k, ok := n.known[did]
	if ok && (k.asking || n.clock.Now().Sub(k.at) < nameAge) || n.ctx.Err() != nil {
		return k.handle
	}
	select {
	case n.slots <- struct{}{}:
	default:
		return k.handle
	}
	if !ok && len(n.known) >= maxNames {
		for old := range n.known { // any one: the next page asks again if it matters
			delete(n.known, old)
			break
		}
	}
	k.asking = true
	n.known[did] = k
	n.wg.Go(func() { n.ask(did) })
	return k.handle
}

func (n *names) ask(did string) {
	defer func() { <-n.slots }()
	ctx, cancel := context.WithTimeout(n.ctx, nameWait)
	defer cancel()
	h := n.from.Handle(ctx, did)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[did] = name{handle: h, at: n.clock.Now()}
}

// show is how an account reads: @handle, or its DID shortened.
func (n *names) show(did string) string {
	if h := n.handle(did); h != "" {
		return "@" + h
	}
	return shortDID(did)
}

// shortDID keeps the method, and the beginning and the end of what follows.
func shortDID(did string) string {
	r := []rune(did)
	if len(r) <= 22 {
		return did
	}
	return string(r[:12]) + "…" + string(r[len(r)-4:])
}
