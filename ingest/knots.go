package ingest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"spindle/store"
)

// Signatures tells whether a DID's key has signed something.
type Signatures interface {
	VerifySignature(ctx context.Context, did string, message, signature []byte) error
}

const (
	// mostKnots bounds how many knots are followed at a time.
	mostKnots = 2000
	// knotsEvery is the least time between two looks at which knots there are, and knotsAtLeast the most.
	knotsEvery   = time.Second
	knotsAtLeast = time.Minute
	// firstLook is how far back the first reading of a knot goes at most.
	firstLook = time.Hour
)

// followedKnot is a knot that is being followed.
type followedKnot struct {
	origin string
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// FollowKnots reads the event streams of every knot that has a repository that is served here, of both generations,
// until ctx ends. Knots come and go with the repositories. What a knot tells by notifyEvent as well is one push.
func (in *Ingest) FollowKnots(ctx context.Context) error {
	running := map[string]*followedKnot{}
	health := &knotHealth{in: in, of: map[[2]string]string{}}
	defer func() {
		for _, f := range running {
			f.stop()
			f.done.Wait()
		}
	}()
	for ctx.Err() == nil {
		wake := in.c.Store.Changed()
		want, err := in.knots(ctx)
		if err != nil && ctx.Err() == nil {
			in.c.Log.Error("list the knots to follow", "err", err)
		}
		if err == nil {
			for host, f := range running {
				if k, ok := want[host]; !ok || k.origin != f.origin {
					f.stop()
					f.done.Wait()
					delete(running, host)
					health.forget(host)
					in.c.Log.Info("knot is no longer followed", "knot", host)
				}
			}
			for host, k := range want {
				if running[host] == nil {
					running[host] = in.followKnot(ctx, host, k, health)
				}
			}
		}
		if in.c.Clock.Sleep(ctx, knotsEvery) != nil {
			break
		}
		idle, cancel := context.WithTimeout(ctx, knotsAtLeast)
		select {
		case <-wake:
		case <-idle.Done():
		}
		cancel()
	}
	return nil
}

func (in *Ingest) followKnot(ctx context.Context, host string, k wantedKnot, health *knotHealth) *followedKnot {
	ctx, stop := context.WithCancel(ctx)
	f := &followedKnot{origin: k.origin, stop: stop}
	for _, protocol := range []string{newerProtocol, olderProtocol} {
		s := &knotStream{in: in, host: host, origin: k.origin, protocol: protocol, floor: k.floor}
		s.state = func(up bool, detail string) { health.set(host, protocol, up, detail) }
		f.done.Go(func() { s.run(ctx) })
	}
	in.c.Log.Info("following a knot", "knot", host)
	return f
}

// wantedKnot is a knot that is to be followed.
type wantedKnot struct {
	origin string
	floor  time.Time
}

// knots lists the knots that are to be followed, by host.
func (in *Ingest) knots(ctx context.Context) (map[string]wantedKnot, error) {
	repos, err := in.c.Store.Repos(ctx)
	if err != nil {
		return nil, err
	}
	out, failed := map[string]wantedKnot{}, map[string]bool{}
	for _, r := range repos {
		if r.Gone || r.Knot == "" {
			continue
		}
		if k, ok := out[r.Knot]; ok {
			if r.VerifiedAt.Before(k.floor) {
				k.floor = in.lookBack(r.VerifiedAt)
				out[r.Knot] = k
			}
			continue
		}
		if failed[r.Knot] || len(out) >= mostKnots {
			continue
		}
		origin, ok := in.originOf(ctx, r)
		if !ok {
			failed[r.Knot] = true
			continue
		}
		out[r.Knot] = wantedKnot{origin: origin, floor: in.lookBack(r.VerifiedAt)}
	}
	return out, nil
}

func (in *Ingest) lookBack(t time.Time) time.Time {
	if least := in.c.Clock.Now().Add(-firstLook); t.Before(least) {
		return least
	}
	return t
}

// originOf is the address of a repository's knot, if its DID document still names it.
func (in *Ingest) originOf(ctx context.Context, r store.RepoBinding) (string, bool) {
	src, err := in.c.Knots.Locate(ctx, r.Repo)
	if err != nil {
		return "", false
	}
	u, err := url.Parse(src.KnotURL)
	return src.KnotURL, err == nil && u.Host == r.Knot
}

// knotHealth sums up how the streams stand.
type knotHealth struct {
	in *Ingest
	mu sync.Mutex
	of map[[2]string]string // what is wrong with a stream; "" for nothing
}

func (h *knotHealth) set(host, protocol string, up bool, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if up {
		detail = ""
	}
	h.of[[2]string{host, protocol}] = detail
	h.tell()
}

func (h *knotHealth) forget(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.of, func(k [2]string, _ string) bool { return k[0] == host })
	h.tell()
}

// tell names at most three of those that are down.
func (h *knotHealth) tell() {
	var down []string
	for k, why := range h.of {
		if why != "" {
			down = append(down, fmt.Sprintf("%s (%s): %s", k[0], k[1], why))
		}
	}
	slices.Sort(down)
	detail := fmt.Sprintf("%d of %d streams answer", len(h.of)-len(down), len(h.of))
	if n := len(down); n > 0 {
		detail += "; " + strings.Join(down[:min(n, 3)], "; ")
	}
	h.in.c.Health("knots", len(down) == 0, detail)
}
