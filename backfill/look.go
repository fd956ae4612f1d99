package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"spindle/knot"
	"spindle/store"
)

const (
	knotsAtOnce = 8   // knots that are looked at at a time, each of them one repository after the other
	failsInARow = 3   // after which a knot's other repositories are left for the next round
	lateMost    = 100 // late pushes that one look may bring; the rest comes with the next
	refsMost    = 5000
	againWait   = 5 * time.Minute // after a round in which something failed
)

// lookLoop looks at all repositories when asked to and now and then, until ctx ends.
func (b *Backfill) lookLoop(ctx context.Context) {
	for ctx.Err() == nil {
		wait := vary(b.c.Looks)
		if b.currentRound().Failed > 0 {
			wait = min(wait, vary(againWait))
		}
		idle, cancel := context.WithCancel(ctx)
		var timer sync.WaitGroup
		timer.Go(func() {
			if b.c.Clock.Sleep(idle, wait) == nil {
				poke(b.looks)
			}
		})
		select {
		case <-b.looks:
		case <-ctx.Done():
		}
		cancel()
		timer.Wait()
		if ctx.Err() != nil {
			return
		}
		if err := b.Look(ctx); err != nil && ctx.Err() == nil {
			b.c.Log.Error("look at the repositories", "err", err)
		}
	}
}

func (b *Backfill) currentRound() Round {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.round
}

func (b *Backfill) roundDid(f func(*Round)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.round)
}

// Look compares the refs of all repositories that are served with where they are believed to be. What is elsewhere now
// and still is after the grace becomes a late push. What cannot be reached is left for the next round.
func (b *Backfill) Look(ctx context.Context) error {
	repos, err := b.c.Store.Repos(ctx)
	if err != nil {
		return fmt.Errorf("read the repositories: %w", err)
	}
	repos = slices.DeleteFunc(repos, func(r store.RepoBinding) bool { return r.Gone || r.Paused != "" })
	b.roundDid(func(r *Round) { *r = Round{Repos: len(repos), Began: b.c.Clock.Now()} })
	first := b.pass(ctx, repos, nil)
	if len(first) > 0 && ctx.Err() == nil {
		if b.c.Grace > 0 {
			if err := b.c.Clock.Sleep(ctx, b.c.Grace); err != nil {
				return nil
			}
		}
		var moved []store.RepoBinding
		for _, r := range repos {
			if first[r.Repo] != nil {
				moved = append(moved, r)
			}
		}
		b.pass(ctx, moved, first)
	}
	b.roundDid(func(r *Round) { r.Ended = b.c.Clock.Now() })
	if r := b.currentRound(); ctx.Err() == nil && (r.Late > 0 || r.Failed > 0) {
		b.c.Log.Info("looked at the repositories", "repositories", r.Repos, "late_pushes", r.Late, "failed", r.Failed)
	}
	return nil
}

// pass looks at repos, knot by knot, and returns what was elsewhere. With confirm, what is still where confirm says is
// taken.
func (b *Backfill) pass(ctx context.Context, repos []store.RepoBinding, confirm map[string]map[string]string) map[string]map[string]string {
	at := map[string][]string{}
	for _, r := range repos {
		at[r.Knot] = append(at[r.Knot], r.Repo)
	}
	var mu sync.Mutex
	out := map[string]map[string]string{}
	var g errgroup.Group
	g.SetLimit(knotsAtOnce)
	for _, k := range slices.Sorted(maps.Keys(at)) {
		g.Go(func() error {
			fails := 0
			for i, repo := range at[k] {
				if ctx.Err() != nil {
					return nil
				}
				moved, err := b.look(ctx, repo, confirm[repo])
				if err != nil && ctx.Err() == nil {
					b.c.Metrics.looks.WithLabelValues("failed").Inc()
					b.c.Log.Info("a repository cannot be looked at", "repo", repo, "knot", k, "err", err)
					fails++
					left := 1
					if fails == failsInARow && knot.Temporary(err) {
						left = len(at[k]) - i
					}
					b.roundDid(func(r *Round) { r.Failed += left })
					if left > 1 {
						return nil
					}
					continue
				}
				fails = 0
				b.c.Metrics.looks.WithLabelValues("done").Inc()
				if confirm == nil {
					b.roundDid(func(r *Round) { r.Looked++ })
				}
				if len(moved) > 0 {
					mu.Lock()
					out[repo] = moved
					mu.Unlock()
				}
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return no error
	return out
}

// errRefs is a repository with more refs than are compared.
var errRefs = errors.New("backfill: too many refs")

// look compares the refs of one repository with where they are believed to be. The first look takes them as they are.
// It returns what is elsewhere, by ref, unless confirm says the same of it: then it is taken.
func (b *Backfill) look(ctx context.Context, repo string, confirm map[string]string) (map[string]string, error) {
	known, err := b.c.Store.Look(ctx, repo)
	if err != nil {
		return nil, err
	}
	src, err := b.c.Knots.Locate(ctx, repo)
	if err != nil {
		return nil, err
	}
	tips, err := b.c.Knots.Tips(ctx, src)
	if err != nil {
		return nil, err
	}
	if len(tips) > refsMost {
		return nil, fmt.Errorf("%w: %d, of which at most %d are compared", errRefs, len(tips), refsMost)
	}
	var refs, gone []store.Ref
	moved, now := map[string]string{}, map[string]string{}
	for _, t := range tips {
		refs = append(refs, store.Ref{Name: t.Name, SHA: t.SHA})
		now[t.Name] = t.SHA
		if !known.First.IsZero() && known.Refs[t.Name] != t.SHA {
			moved[t.Name] = t.SHA
		}
	}
	for name, sha := range known.Refs {
		if now[name] == "" {
			gone = append(gone, store.Ref{Name: name, SHA: sha})
		}
	}
	if len(moved) > 0 {
		open, err := b.late(ctx, repo, known, moved, confirm)
		if err != nil || len(open) > 0 {
			return open, err
		}
	}
	if !known.First.IsZero() && len(moved) == 0 && len(gone) == 0 && confirm == nil {
		// Nothing to tell, but for the mark: what was told before is settled.
		return nil, b.c.Store.Sight(ctx, repo, known, nil, nil)
	}
	return nil, b.c.Store.Sight(ctx, repo, known, refs, gone)
}

// late takes the moves that confirm agrees with, and returns the others.
func (b *Backfill) late(ctx context.Context, repo string, known store.Look, moved, confirm map[string]string) (map[string]string, error) {
	open, n := map[string]string{}, 0
	for _, ref := range slices.Sorted(maps.Keys(moved)) {
		sha := moved[ref]
		if b.c.Grace > 0 && confirm[ref] != sha || n == lateMost {
			open[ref] = sha
			continue
		}
		n++
		expect := known.Refs[ref]
		old := expect
		if old == "" {
			old = strings.Repeat("0", len(sha))
		}
		taken, err := b.c.Intake.Found(ctx, repo, ref, old, sha, expect)
		if err != nil {
			return nil, fmt.Errorf("late push of %s: %w", ref, err)
		}
		if !taken {
			continue
		}
		b.c.Metrics.late.Inc()
		b.roundDid(func(r *Round) { r.Late++ })
		b.c.Log.Info("a push that nobody told of", "repo", repo, "ref", ref, "commit", sha)
	}
	return open, nil
}
