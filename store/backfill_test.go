package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ticket = "org.tangled.track.ticket"

func kept(did, rkey, rev, cid string) Record {
	return Record{DID: did, Collection: ticket, Rkey: rkey, Rev: rev, CID: cid, CBOR: []byte{0xa0}}
}

func dids(bs []Backfill) (out []string) {
	for _, b := range bs {
		out = append(out, b.DID)
	}
	return out
}

// TestTrackedAreTheWholeSetOnce has accounts that matter for several reasons, and some that no longer do.
func TestTrackedAreTheWholeSetOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Admins, c.Members, c.Banned = []string{alice}, []string{bob}, []string{carol} })
	b.bind(repoA, alice)
	b.bind(repoB, carol) // banned: neither the account nor anything of it is followed
	author := "did:plc:authorauthorauthorauthor"
	_, err := b.Accept(b.ctx(), Effects{Records: []Record{kept(author, "1", "3a", "c")}})
	require.NoError(t, err)
	require.NoError(t, b.WantBackfill(b.ctx(), "did:plc:formerformerformerformer2", BackfillAccount, "asked"))
	n, err := b.WantAll(b.ctx(), "start")
	require.NoError(t, err)
	due, err := b.DueBackfills(b.ctx(), 100, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{alice, author, bob, boss, repoA}, dids(due))
	require.Equal(t, 5, n)
	r, _, err := b.Backfill(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, BackfillRepo, r.Kind)
	c, err := b.CountBackfills(b.ctx())
	require.NoError(t, err)
	require.Equal(t, BackfillCount{Wanted: 5}, c)
	require.Equal(t, 5, c.Total())
}

// TestReadingGoesThroughItsStates follows one DID, with a wish that comes while its records are read, and a crash.
func TestReadingGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := b.ctx()
	one := func() Backfill {
		r, ok, err := b.Backfill(ctx, alice)
		require.NoError(t, err)
		require.True(t, ok)
		return r
	}
	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "asked"))
	require.NoError(t, b.BeginBackfill(ctx, one(), "pds.test"))
	require.Equal(t, BackfillFetching, one().State)
	due, err := b.DueBackfills(ctx, 10, nil)
	require.NoError(t, err)
	require.Empty(t, due)
	_, err = b.ApplyBackfill(ctx, BackfillStep{DID: alice, Rev: "3a", Wish: 1}, []Effects{{Records: []Record{kept(alice, "1", "3a", "c")}}})
	require.NoError(t, err)
	require.Equal(t, BackfillApplying, one().State)

	b.reopen()
	require.Equal(t, BackfillApplying, one().State)
	require.NoError(t, b.ResumeBackfills(ctx))
	require.Equal(t, BackfillWanted, one().State)

	was := one()
	require.NoError(t, b.BeginBackfill(ctx, was, "pds.test"))
	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "gap"))
	require.Equal(t, BackfillFetching, one().State, "a reading is not begun twice at a time")
	_, err = b.ApplyBackfill(ctx, BackfillStep{DID: alice, Rev: "3a", Wish: was.Wish, Done: true}, nil)
	require.NoError(t, err)
	require.Equal(t, BackfillWanted, one().State, "what was asked for meanwhile is granted after")
	_, err = b.ApplyBackfill(ctx, BackfillStep{DID: alice, Rev: "3b", Wish: one().Wish, Done: true}, nil)
	require.NoError(t, err)
	require.Equal(t, BackfillDone, one().State)
	require.Equal(t, "3b", one().Rev)

	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "gap"))
	require.NoError(t, b.PostponeBackfill(ctx, one(), "busy", b.clock.Now().Add(time.Minute), 1))
	require.Equal(t, BackfillWaiting, one().State)
	due, err = b.DueBackfills(ctx, 10, nil)
	require.NoError(t, err)
	require.Empty(t, due)
	b.clock.Advance(time.Minute)
	due, err = b.DueBackfills(ctx, 10, nil)
	require.NoError(t, err)
	require.Len(t, due, 1)
	due, err = b.DueBackfills(ctx, 10, []string{"pds.test"})
	require.NoError(t, err)
	require.Empty(t, due, "its host is left alone")
	require.NoError(t, b.PostponeBackfill(ctx, one(), "no", time.Time{}, 0))
	require.Equal(t, BackfillRefused, one().State)
	bad, err := b.Troubled(ctx, 10)
	require.NoError(t, err)
	require.Len(t, bad, 1)
	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "asked"))
	require.Equal(t, BackfillWanted, one().State)
}

// TestB011OlderCopyNeverOvertakes applies whole readings that are older than what was told live: an update, a
// deletion of a record that was kept, and one of a record that never was.
func TestB011OlderCopyNeverOvertakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := b.ctx()
	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "start"))
	live := func(r Record) {
		_, err := b.Accept(ctx, Effects{Records: []Record{r}})
		require.NoError(t, err)
	}
	live(kept(alice, "updated", "3f", "new"))
	live(kept(alice, "deleted", "3a", "old"))
	live(Record{DID: alice, Collection: ticket, Rkey: "deleted", Rev: "3f", Deleted: true})
	live(Record{DID: alice, Collection: ticket, Rkey: "unseen", Rev: "3f", Deleted: true})
	var es []Effects
	for _, k := range []string{"updated", "deleted", "unseen"} {
		es = append(es, Effects{Records: []Record{kept(alice, k, "3c", "old")}})
	}
	_, err := b.ApplyBackfill(ctx, BackfillStep{DID: alice, Rev: "3c", Wish: 1, Done: true}, es)
	require.NoError(t, err)
	for k, cid := range map[string]string{"updated": "new", "deleted": "", "unseen": ""} {
		r, ok, err := b.Record(ctx, alice, ticket, k)
		require.NoError(t, err)
		require.True(t, ok, k)
		require.Equal(t, cid, r.CID, k)
		require.Equal(t, cid == "", r.Deleted, k)
		require.Equal(t, "3f", r.Rev, k)
	}
	// Of an account that nobody reads as a whole, an absence of what was never kept is not kept.
	live(Record{DID: bob, Collection: ticket, Rkey: "unseen", Rev: "3f", Deleted: true})
	_, ok, err := b.Record(ctx, bob, ticket, "unseen")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestRecordsBeforeARevision(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := b.ctx()
	for _, r := range []Record{kept(alice, "1", "3a", "c"), kept(alice, "2", "3b", "c"), kept(alice, "3", "3c", "c"), kept(bob, "1", "3a", "c")} {
		_, err := b.Accept(ctx, Effects{Records: []Record{r}})
		require.NoError(t, err)
	}
	keys, err := b.RecordsBefore(ctx, alice, "3c", RecordKey{}, 10)
	require.NoError(t, err)
	require.Equal(t, []RecordKey{{ticket, "1"}, {ticket, "2"}}, keys)
	keys, err = b.RecordsBefore(ctx, alice, "3c", keys[0], 10)
	require.NoError(t, err)
	require.Equal(t, []RecordKey{{ticket, "2"}}, keys)
	require.NoError(t, b.WantBackfill(ctx, alice, BackfillAccount, "start"))
	_, err = b.ApplyBackfill(ctx, BackfillStep{DID: alice, Rev: "3c", Wish: 1, Present: []RecordKey{{ticket, "1"}, {ticket, "9"}}}, nil)
	require.NoError(t, err)
	keys, err = b.RecordsBefore(ctx, alice, "3c", RecordKey{}, 10)
	require.NoError(t, err)
	require.Equal(t, []RecordKey{{ticket, "2"}}, keys)
}

func TestFirstStartIsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, err := b.Began(b.ctx())
	require.NoError(t, err)
	require.Equal(t, b.clock.Now(), first)
	b.clock.Advance(time.Hour)
	b.reopen()
	again, err := b.Began(b.ctx())
	require.NoError(t, err)
	require.Equal(t, first, again)
}
