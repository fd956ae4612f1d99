// Command queue measures the queue with ten thousand workflows of a hundred owners in it: how long a claim takes, and
// how long it takes from the wish of an owner who has nothing in the queue until that workflow is claimed. The others'
// backlog must not stand in front of it.
//
// It speaks to the store alone: every write is one durable commit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"spindle/bench/internal/measure"
	"spindle/internal/clock"
	"spindle/internal/tid"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	waiting := flag.Int("waiting", 10_000, "workflows that wait")
	owners := flag.Int("owners", 100, "owners that they belong to")
	n := flag.Int("n", 200, "samples")
	flag.Parse()
	dir, err := os.MkdirTemp("", "spindle-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := store.Open(ctx, store.Config{
		Path: filepath.Join(dir, "spindle.db"), Admission: rbac.Open, Owner: did("boss", 0),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b := bench{Store: s, ids: tid.New(clock.Real{})}
	if err := b.fill(ctx, *owners, *waiting); err != nil {
		return err
	}
	if err := b.claims(ctx, *n); err != nil {
		return err
	}
	return b.newcomers(ctx, *n)
}

type bench struct {
	*store.Store
	ids *tid.Source
}

// did is a made-up account or repository.
func did(kind string, i int) string { return fmt.Sprintf("did:web:%s%d.test", kind, i) }

// bind makes owner i's repository known.
func (b bench) bind(ctx context.Context, i int) error {
	_, err := b.Accept(ctx, store.Effects{Repos: []store.RepoBinding{{
		Repo: did("repo", i), Owner: did("owner", i), Rkey: "self", Name: "hello", Knot: "knot.test", VerifiedAt: time.Now(),
	}}})
	return err
}

// enqueue accepts and plans one push of owner i.
func (b bench) enqueue(ctx context.Context, i, push int) error {
	repo, owner := did("repo", i), did("owner", i)
	a, err := b.Accept(ctx, store.Effects{Event: &pipeline.Trigger{
		Key: fmt.Sprintf("%s:%d", repo, push), Kind: pipeline.Push, Repo: repo, Actor: owner, At: time.Now(),
		Ref: fmt.Sprintf("refs/heads/b%d", push), Commit: fmt.Sprintf("%040x", push),
	}})
	if err != nil {
		return err
	}
	_, err = b.Enqueue(ctx, store.Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{
		ID: pipeline.ID(b.ids.Next()), Repo: repo, Owner: owner, Trust: pipeline.TrustBranch, CreatedAt: time.Now(),
		Workflows: []pipeline.Workflow{{
			Name: "test", File: ".tangled/workflows/test.yml", Engine: "dummy", Status: pipeline.Waiting,
			Spec: []byte(`{"name":"test"}`), Digest: "0",
		}},
	}})
	return err
}

// fill makes the backlog.
func (b bench) fill(ctx context.Context, owners, waiting int) error {
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(64) // so many share a commit
	for i := range owners {
		if err := b.bind(ctx, i); err != nil {
			return fmt.Errorf("bind a repository: %w", err)
		}
	}
	for k := range waiting {
		g.Go(func() error { return b.enqueue(gctx, k%owners, k) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	measure.Print("queue_enqueue_rate", float64(waiting)/time.Since(began).Seconds(), "pushes/s")
	return nil
}

// next claims one workflow and ends it. claimed is when it was handed out.
func (b bench) next(ctx context.Context) (owner string, claimed time.Time, err error) {
	c, err := b.Claim(ctx, store.ClaimRequest{Holder: "bench", Engines: []string{"dummy"}, TTL: time.Minute})
	claimed = time.Now()
	if err != nil {
		return "", claimed, fmt.Errorf("claim: %w", err)
	}
	if c == nil {
		return "", claimed, errors.New("there is nothing to claim")
	}
	_, err = b.Apply(ctx, c.Lease.Pipeline, c.Lease.Workflow, pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Passed})
	return c.Pipeline.Owner, claimed, err
}

func (b bench) claims(ctx context.Context, n int) error {
	var claims measure.Samples
	turns := map[string]int{}
	for range n {
		began := time.Now()
		owner, claimed, err := b.next(ctx)
		if err != nil {
			return err
		}
		claims.Add(claimed.Sub(began))
		turns[owner]++
	}
	claims.Print("queue_claim")
	measure.Print("queue_owners_served", float64(len(turns)), fmt.Sprintf("of_%d_claims", n))
	return nil
}

// newcomers measures from the wish of an owner without work to its claim.
func (b bench) newcomers(ctx context.Context, n int) error {
	var waits measure.Samples
	overtaken := 0
	for i := range n {
		who := 1_000_000 + i
		if err := b.bind(ctx, who); err != nil {
			return fmt.Errorf("bind a repository: %w", err)
		}
		began := time.Now()
		if err := b.enqueue(ctx, who, 1_000_000+i); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		for {
			owner, claimed, err := b.next(ctx)
			if err != nil {
				return err
			}
			if owner == did("owner", who) {
				waits.Add(claimed.Sub(began))
				break
			}
			overtaken++
		}
	}
	waits.Print("queue_enqueue_to_claim") // accept, plan, claim: three commits
	measure.Print("queue_overtaken_by_backlog", float64(overtaken)/float64(n), "claims")
	return nil
}
