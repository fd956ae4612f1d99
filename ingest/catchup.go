package ingest

import (
	"context"
	"fmt"
	"time"

	"spindle/store"
)

// The components of which ingest tells the health.
const (
	streamPart  = "record stream"
	catchUpPart = "catch-up"
)

const (
	// gapsEvery is how often gaps are looked for that nobody told of: those of a former process.
	gapsEvery = time.Minute
	// Back-off between tries to make up for a gap.
	firstGapWait = 5 * time.Second
	mostGapWait  = 5 * time.Minute
)

func (in *Ingest) wakeCatchUp() {
	select {
	case in.gaps <- struct{}{}:
	default:
	}
}

// CatchUp makes up for gaps in the record streams until ctx ends. A gap stands in the store, and in the health, until
// what it may have held was looked up.
func (in *Ingest) CatchUp(ctx context.Context) error {
	wait := firstGapWait
	for ctx.Err() == nil {
		open, err := in.c.Store.OpenGaps(ctx)
		in.stats.gaps.Store(int64(len(open)))
		if err == nil && len(open) == 0 {
			in.c.Health(catchUpPart, true, "nothing is known to be missed")
			in.idle(ctx)
			continue
		}
		if err == nil {
			err = in.makeUp(ctx, open)
		}
		if err == nil {
			wait = firstGapWait
			continue
		}
		if ctx.Err() != nil {
			break
		}
		in.c.Health(catchUpPart, false, "what record streams did not tell cannot be looked up yet: "+err.Error())
		in.c.Log.Error("make up for a gap", "err", err, "again_in", wait)
		if in.c.Clock.Sleep(ctx, wait) != nil {
			break
		}
		wait = min(wait*2, mostGapWait)
	}
	return nil
}

// idle waits for a gap to be told of.
func (in *Ingest) idle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gapsEvery)
	defer cancel()
	select {
	case <-in.gaps:
	case <-ctx.Done():
	}
}

// makeUp makes up for the oldest gap, and with it for those that were open when that began: looking up what is missed
// is the same for all of them.
func (in *Ingest) makeUp(ctx context.Context, open []store.Gap) error {
	g := open[0]
	in.c.Health(catchUpPart, false, fmt.Sprintf("looking up what %s (%s) did not tell: %s", g.Host, g.Protocol, g.Reason))
	if err := in.c.Gaps.Gap(ctx, g.Source, g.Host, g.From, g.To, g.Reason); err != nil {
		return fmt.Errorf("gap of %s: %w", g.Host, err)
	}
	for _, g := range open {
		closed, err := in.c.Store.CloseGap(ctx, g)
		if err != nil {
			return err
		}
		if closed {
			in.c.Log.Info("a gap of a record stream is made up for", "host", g.Host, "protocol", g.Protocol, "reason", g.Reason)
		}
	}
	return nil
}

// known is a Gaps that has everything that is known here proven anew.
type known struct{ in *Ingest }

// Gap implements Gaps. It returns once the hints stand.
func (k known) Gap(ctx context.Context, _, _ string, _, _ int64, reason string) error {
	if err := k.in.askMembers(ctx); err != nil {
		return err
	}
	repos, err := k.in.c.Store.Repos(ctx)
	if err != nil {
		return err
	}
	for len(repos) > 0 {
		n := min(len(repos), 500)
		var e store.Effects
		for _, b := range repos[:n] {
			again := bindAgain(b.Repo)
			again.Reason = reason
			e.Rechecks = append(e.Rechecks, again)
		}
		if _, err := k.in.c.Store.Accept(ctx, e); err != nil {
			return err
		}
		repos = repos[n:]
	}
	k.in.wakeProvers()
	return nil
}

// resync has everything proven anew that is known to hang on one account.
func (in *Ingest) resync(ctx context.Context, did string) (store.Effects, error) {
	repos, err := in.c.Store.Repos(ctx)
	if err != nil {
		return store.Effects{}, err
	}
	var e store.Effects
	for _, b := range repos {
		if b.Owner == did || b.Repo == did {
			e.Rechecks = append(e.Rechecks, bindAgain(b.Repo))
		}
	}
	if ok, err := in.grants(ctx, did); err != nil || !ok {
		return e, err
	}
	e.Rechecks = append(e.Rechecks, store.Recheck{DID: did, Collection: membersHint, Rkey: "self"})
	return e, nil
}
