package ingest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/firehose"
	"spindle/devnet/pds"
	"spindle/identity"
)

// runOn is run on the firehose of every host.
func (b *bench) runOn() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.done.Go(func() { _ = b.Follow(ctx, b.net.FirehoseURL()) })
	b.done.Go(func() { _ = b.Prove(ctx) })
	b.t.Cleanup(b.halt)
	until(b.t, func() bool { return b.net.Relay().Subscribers() == 1 }, "connected")
}

// TestFirehoseNeedsNoJetstream serves a repository and takes a pull request of a stranger by the firehose alone. The
// records of the pull request are proven by what came with them: their server is asked for nothing.
func TestFirehoseNeedsNoJetstream(t *testing.T) {
	t.Parallel()
	asked := &asking{}
	b := newBench(t, func(c *Config) { asked.Prover = c.Prover; c.Prover = asked })
	b.net.Jetstream().Cut()
	b.runOn()
	r := b.repo(b.alice, "site")
	until(t, func() bool { return b.served(r) }, "the repository is served")
	bob := b.account("bob.test")
	_, _, err := bob.Put(devnet.Ticket, "3mzzzzzzzzz2a", map[string]any{
		"repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": "2026-01-01T00:00:00Z",
	}, "")
	require.NoError(t, err)
	until(t, func() bool { return b.tries.of("record_proven_by_frame") > 0 }, "its commit proves it")
	require.NotContains(t, asked.of(), bob.DID.String()+" "+devnet.Ticket)
}

// TestT02ForgedCommitsProveNothing has a relay that makes up commits of somebody, and one that tells of real ones wrong.
func TestT02ForgedCommitsProveNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runOn()
	r := b.repo(b.alice, "site")
	until(t, func() bool { return b.served(r) }, "the repository is served")
	bob := b.account("bob.test")
	ticket := map[string]any{"repo": r.DID.String(), "title": "t", "kind": "pull", "createdAt": "2026-01-01T00:00:00Z"}
	for i, way := range []pds.Tamper{pds.BadSignature, pds.HighS, pds.OtherDID, pds.CorruptBlock, pds.Truncated, pds.ForgedTree, pds.FutureRev} {
		bob.Tamper(way)
		_, _, err := bob.Put(devnet.Ticket, key(i), ticket, "")
		require.NoError(t, err)
		bob.Tamper(pds.Honest)
	}
	until(t, func() bool { return b.tries.of("record_frame_unproven") >= 6 }, "none proves")
	until(t, func() bool {
		_, ok, err := b.store.Record(t.Context(), bob.DID.String(), devnet.Ticket, key(6))
		return err == nil && ok
	}, "the account's own server is asked then, and proves them")
}

// TestCommitsThatAreTooBigHaveTheAccountLookedAt tells nothing of what changed.
func TestCommitsThatAreTooBigHaveTheAccountLookedAt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.repo(b.alice, "site")
	b.net.Relay().SetFaults(firehose.Faults{TooBig: true})
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.done.Go(func() { _ = b.Follow(ctx, b.net.FirehoseURL()) })
	b.t.Cleanup(b.halt)
	until(t, func() bool { return b.net.Relay().Subscribers() == 1 }, "connected")
	_, _, err := b.alice.Put(devnet.Ticket, key(0), map[string]any{
		"repo": r.DID.String(), "title": "t", "kind": "issue", "createdAt": "2026-01-01T00:00:00Z",
	}, "")
	require.NoError(t, err)
	until(t, func() bool { return b.hints()["self"].Collection == syncHint }, "the account is looked at")
	_, err = b.net.Relay().Sync(nobody, "3mzzzzzzzzz2a")
	require.NoError(t, err)
	_, err = b.net.Relay().Sync(b.alice.DID.String(), "3mzzzzzzzzz2a")
	require.NoError(t, err)
	until(t, func() bool { return b.hints()["self"].Generation == 2 }, "as after a sync, and nobody else is")
	require.Len(t, b.hints(), 1)
}

// asking notes what was asked of servers.
type asking struct {
	Prover
	tally
}

// Record implements Prover.
func (a *asking) Record(ctx context.Context, did, collection, rkey string) (identity.Proven, error) {
	a.add(did + " " + collection)
	return a.Prover.Record(ctx, did, collection, rkey)
}

func (a *asking) of() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.n {
		out = append(out, k)
	}
	return out
}
