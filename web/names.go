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
	// namePatience is how long a page waits for a name that it never had: long enough for one that the server
	// has met in verifying records, which is nearly all, and too short to be felt. nameRest is for how long
	// nobody waits after a wait was in vain, so that slow directories cost a page one wait and not one a name.
	namePatience = 25 * time.Millisecond
	nameRest     = 5 * time.Second
)

// names remembers handles. A page shows what is known at the moment or shortly after; what is not is looked up
// behind it.
type names struct {
	ctx   context.Context // of the whole package
	wg    *sync.WaitGroup
	from  Names
	clock clock.Clock
	slots chan struct{}

	mu    sync.Mutex
	known map[string]name
	rest  time.Time // until when pages do not wait
}

type name struct {
	handle string
	at     time.Time
	asking chan struct{} // closed when the answer is here; nil while nobody asks
}

func newNames(ctx context.Context, wg *sync.WaitGroup, from Names, c clock.Clock) *names {
	return &names{ctx: ctx, wg: wg, from: from, clock: c, slots: make(chan struct{}, nameAtOnce), known: map[string]name{}}
}

// handle is the handle of did as far as it is known now.
func (n *names) handle(did string) string {
	if n.from == nil || did == "" {
		return ""
	}
	handle, asked := n.look(did)
	if asked == nil {
		return handle
	}
	wait := time.NewTimer(namePatience)
	defer wait.Stop()
	select {
	case <-asked:
		handle, _ = n.look(did)
	case <-wait.C:
		n.mu.Lock()
		n.rest = n.clock.Now().Add(nameRest)
		n.mu.Unlock()
	}
	return handle
}

// forget makes the next page ask for the handle of did again.
func (n *names) forget(did string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.known[did]; ok && k.asking == nil {
		delete(n.known, did)
	}
}

// look is what is known of did, and what to wait for if it was never asked before.
func (n *names) look(did string) (string, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	k, ok := n.known[did]
	if ok && (k.asking != nil || now.Sub(k.at) < nameAge) || n.ctx.Err() != nil {
		return k.handle, nil
	}
	select {
	case n.slots <- struct{}{}:
	default:
		return k.handle, nil
	}
	if !ok && len(n.known) >= maxNames {
		for old := range n.known { // any one: the next page asks again if it matters
			delete(n.known, old)
			break
		}
	}
	k.asking = make(chan struct{})
	n.known[did] = k
	n.wg.Go(func() { n.ask(did, k.asking) })
	if ok || now.Before(n.rest) {
		return k.handle, nil
	}
	return "", k.asking
}

func (n *names) ask(did string, asking chan struct{}) {
	defer func() { <-n.slots }()
	ctx, cancel := context.WithTimeout(n.ctx, nameWait)
	defer cancel()
	h := n.from.Handle(ctx, did)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[did] = name{handle: h, at: n.clock.Now()}
	close(asking)
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
