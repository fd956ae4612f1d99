package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
	"spindle/workflow"
)

// Store is where events wait and plans go.
type Store interface {
	NextEvents(ctx context.Context, limit int) ([]store.Event, error)
	PostponeEvent(ctx context.Context, id int64, reason string, until time.Time) error
	SettleEvent(ctx context.Context, id int64, state store.EventState, reason string) error
	RefuseEvent(ctx context.Context, id int64, code, reason string) error
	PutSchedules(ctx context.Context, repo, sha string, list []store.Schedule) error
	Enqueue(ctx context.Context, p store.Plan) (pipeline.Pipeline, error)
	Pipeline(ctx context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error)
	Specs(ctx context.Context, id pipeline.ID) (map[string][]byte, error)
	Repo(ctx context.Context, did string) (store.RepoBinding, bool, error)
	Gate(ctx context.Context) (*rbac.Gate, error)
	Changed() <-chan struct{}
}

// Sources reads repositories at their knots.
type Sources interface {
	Locate(ctx context.Context, repo string) (knot.Source, error)
	Workflows(ctx context.Context, src knot.Source, sha string) (knot.Files, error)
	ChangedFiles(ctx context.Context, src knot.Source, from, to string, most int) (files []string, complete bool, err error)
	RefContains(ctx context.Context, src knot.Source, ref, sha string) (bool, error)
	// MergeBase is where head left the history of other: that of ref, or that of the commit at if ref is empty.
	MergeBase(ctx context.Context, src knot.Source, head string, other knot.Source, ref, at string) (string, error)
}

// Config is what a Planner needs. All fields are required but Capabilities, Parallel, MaxTries and Limits.
type Config struct {
	Store   Store
	Sources Sources
	IDs     *tid.Source
	Clock   clock.Clock
	Log     *slog.Logger
	// Engines are those that can run here; others make a workflow invalid.
	Engines []string
	// Capabilities are what the server and its engines carry out of the language; nil means everything.
	Capabilities *workflow.Capabilities
	// Limits bound workflow files.
	Limits workflow.Limits
	// Parallel is how many lanes (repositories, and forks that propose to them) are planned at a time; below 2 means 4.
	Parallel int
	// MaxTries is how often a knot that cannot be reached is tried before the event is given up; below 1 means 12.
	MaxTries int
}

// Planner plans events. Make it with New and call Run once.
type Planner struct {
	c Config

	mu   sync.Mutex
	busy map[string]bool // lanes being planned; true for those of a fork
	free chan struct{}   // wakes the loop when one of them is done; has room for one
}

// New returns a planner.
func New(c Config) *Planner {
	if c.Parallel < 2 {
		c.Parallel = 4
	}
	if c.MaxTries < 1 {
		c.MaxTries = 12
	}
	return &Planner{c: c, busy: map[string]bool{}, free: make(chan struct{}, 1)}
}

// Run plans events until ctx ends, and returns when no planning is under way.
func (p *Planner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	seats := make(chan struct{}, p.c.Parallel)
	for ctx.Err() == nil {
		wake := p.c.Store.Changed()
		// What was being planned before the list was read may be settled by now, though the list still has it.
		stale := p.planning()
		events, err := p.c.Store.NextEvents(ctx, 64)
		if err != nil && ctx.Err() == nil {
			p.c.Log.Error("read waiting events", "err", err)
		}
		for _, e := range p.take(events, stale) {
			select {
			case seats <- struct{}{}:
			case <-ctx.Done():
				p.release(e.Lane)
				continue
			}
			wg.Go(func() {
				defer func() { <-seats; p.release(e.Lane) }()
				p.plan(ctx, e)
			})
		}
		// The timer covers events that were postponed: their time comes without a change.
		idle, cancel := context.WithTimeout(ctx, time.Second)
		select {
		case <-wake:
		case <-p.free:
		case <-idle.Done():
		}
		cancel()
	}
	return nil
}

// planning lists the lanes that are being planned.
func (p *Planner) planning() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.busy)
}

// take marks and returns the first event of every lane that was not being planned when events was read. Forks take
// at most half of the places, so that knots of strangers who do not answer never hold all of them.
func (p *Planner) take(events []store.Event, stale map[string]bool) []store.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	forks := 0
	for _, fork := range p.busy {
		if fork {
			forks++
		}
	}
	var out []store.Event
	for _, e := range events {
		if _, was := stale[e.Lane]; was {
			continue
		}
		if _, is := p.busy[e.Lane]; is {
			continue
		}
		fork := e.Trigger.CodeRepo() != e.Trigger.Repo
		if fork && forks >= max(p.c.Parallel/2, 1) {
			continue
		}
		if fork {
			forks++
		}
		p.busy[e.Lane] = fork
		out = append(out, e)
	}
	return out
}

func (p *Planner) release(lane string) {
	p.mu.Lock()
	delete(p.busy, lane)
	p.mu.Unlock()
	select {
	case p.free <- struct{}{}:
	default:
	}
}

// plan settles one event, or postpones it when the knot cannot be reached.
func (p *Planner) plan(ctx context.Context, e store.Event) {
	log := p.c.Log.With("event", e.ID, "repo", e.Trigger.Repo, "kind", e.Trigger.Kind)
	tries, own := p.c.MaxTries, ctx
	if e.Trigger.CodeRepo() != e.Trigger.Repo {
		// The knot of a fork is a stranger's choice, and what is after this event waits for it.
		tries = min(tries, forkTries)
		var cancel context.CancelFunc
		own, cancel = context.WithTimeout(ctx, forkTime)
		defer cancel()
	}
	err := p.settle(own, e)
	var refusal *store.Refusal
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case errors.As(err, &refusal):
		log.Info("refused", "code", refusal.Decision.Code) // the store has settled the event
	case !knot.Temporary(err) || errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrConflict):
		if serr := p.c.Store.SettleEvent(ctx, e.ID, store.EventGone, sentence(err)); serr != nil {
			log.Error("settle the event", "err", serr)
		}
		log.Warn("cannot be planned", "err", err)
	case e.Tries+1 >= tries:
		reason := fmt.Sprintf("given up after %d tries: %s", e.Tries+1, sentence(err))
		if serr := p.c.Store.SettleEvent(ctx, e.ID, store.EventGone, reason); serr != nil {
			log.Error("settle the event", "err", serr)
		}
		log.Error("given up", "tries", e.Tries+1, "err", err)
	default:
		wait := backOff(e.Tries)
		if serr := p.c.Store.PostponeEvent(ctx, e.ID, sentence(err), p.c.Clock.Now().Add(wait)); serr != nil {
			log.Error("postpone the event", "err", serr)
		}
		log.Warn("will try again", "in", wait, "err", err)
	}
}

// How long, and how often, the knot of a fork may keep the events behind it waiting.
const (
	forkTime  = 20 * time.Second
	forkTries = 4
)

// backOff grows from 1 s to 5 minutes, with a fifth of jitter, so that a knot that comes back is not met
// by everybody at once.
func backOff(tries int) time.Duration {
	d := time.Second << min(tries, 9)
	d = min(d, 5*time.Minute)
	return d - d/10 + rand.N(d/5)
}

func sentence(err error) string {
	if errors.Is(err, store.ErrTooLarge) {
		return "the workflows of this commit are more than one pipeline can hold"
	}
	if s, ok := knot.Sentence(err); ok {
		return s
	}
	return "the workflow files could not be read"
}
