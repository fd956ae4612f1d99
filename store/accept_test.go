package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
	"spindle/rbac"
)

// P2: one trigger key, however often and however concurrently it is told, has one event and one pipeline.
func TestP2DuplicatesRaceToOnePipeline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	tr := b.trigger(repoA, alice, "main")
	const n = 32
	ids := make([]pipeline.ID, n)
	fresh := make([]bool, n)
	for i := range ids {
		ids[i] = pipeline.ID(b.ids.Next())
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			again := tr
			again.At = tr.At.Add(time.Duration(i) * time.Second) // told at another time, by another way
			a, err := b.Accept(b.ctx(), Effects{Event: &again})
			if err != nil {
				t.Error(err)
				return
			}
			fresh[i] = !a.Duplicate
			p, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: ids[i], Repo: repoA, Owner: alice,
				Workflows: []pipeline.Workflow{flow("test", pipeline.Waiting)}}})
			if err != nil {
				t.Error(err)
			}
			ids[i] = p.ID
		})
	}
	wg.Wait()
	first := 0
	for i := range n {
		require.Equal(t, ids[0], ids[i])
		if fresh[i] {
			first++
		}
	}
	require.Equal(t, 1, first)
	_, total, err := b.Pipelines(b.ctx(), Query{})
	require.NoError(t, err)
	require.Equal(t, 1, total)

	other := tr
	other.Commit = fmt.Sprintf("%040x", 99)
	_, err = b.Accept(b.ctx(), Effects{Event: &other, Cursor: &Cursor{Source: "knot", Host: "k", Protocol: "v1", Value: 5}})
	require.ErrorIs(t, err, ErrConflict)
	_, known, err := b.Cursor(b.ctx(), "knot", "k", "v1")
	require.NoError(t, err)
	require.False(t, known, "a refused event moves no cursor")
	v, ok, err := b.EventByKey(b.ctx(), tr.Key)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, EventDone, v.State)
	require.Equal(t, ids[0], v.Pipeline)
}

// P9: a cursor never moves back, neither by this package nor by a hand on the file.
func TestP9CursorsNeverMoveBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, v := range []int64{5, 9, 3, 9} {
		require.NoError(t, b.SaveCursor(b.ctx(), Cursor{Source: "jetstream", Host: "j", Protocol: "v1", Value: v}))
	}
	c, ok, err := b.Cursor(b.ctx(), "jetstream", "j", "v1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(9), c.Value)
	err = b.write(b.ctx(), "set back", func(t *tx) error { return t.exec1("UPDATE cursors SET value = 1") })
	require.ErrorContains(t, err, "never moves back")
}

// T03: an older revision changes nothing, whatever is said to follow from it.
func TestT03OldRecordsHaveNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Admission = rbac.Closed })
	rec := func(rev, cid string, deleted bool) Record {
		return Record{DID: boss, Collection: "sh.tangled.spindle.member", Rkey: "r1", Rev: rev, CID: cid, CBOR: []byte(cid), Deleted: deleted}
	}
	accept := func(r Record, removed bool) Accepted {
		a, err := b.Accept(b.ctx(), Effects{Records: []Record{r}, Members: []Member{{DID: bob, Removed: removed}}})
		require.NoError(t, err)
		return a
	}
	serves := func() bool {
		g, err := b.Gate(b.ctx())
		require.NoError(t, err)
		return g.Admit(rbac.Repo{DID: repoB, Owner: bob}).Allowed
	}
	require.False(t, serves())
	require.Equal(t, Accepted{RecordsApplied: 1}, accept(rec("3k2", "c1", false), false))
	require.True(t, serves())
	require.Equal(t, Accepted{}, accept(rec("3k2", "c1", false), false), "the same record is no change")
	require.Equal(t, Accepted{RecordsApplied: 1}, accept(rec("3k5", "", true), true))
	require.False(t, serves())
	require.Equal(t, Accepted{Stale: true}, accept(rec("3k4", "c2", false), false), "a replayed grant")
	require.False(t, serves())
	got, ok, err := b.Record(b.ctx(), boss, "sh.tangled.spindle.member", "r1")
	require.NoError(t, err)
	require.True(t, ok && got.Deleted && got.Rev == "3k5")
	require.Equal(t, Accepted{RecordsApplied: 1}, accept(rec("3k6", "c3", false), false))
	require.True(t, serves())
}

// T10: of many concurrent uses of one token exactly one succeeds, and an effect with a used token is none.
func TestT10TokenIsUsedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exp := b.clock.Now().Add(time.Minute)
	var mu sync.Mutex
	var wg sync.WaitGroup
	ok := 0
	for range 100 {
		wg.Go(func() {
			fresh, err := b.UseToken(b.ctx(), alice, "j1", exp)
			if err != nil {
				t.Error(err)
			}
			if fresh {
				mu.Lock()
				ok++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, ok)
	tr := b.trigger(repoA, alice, "main")
	_, err := b.Accept(b.ctx(), Effects{Event: &tr, Token: &Token{alice, "j1", exp}})
	require.ErrorIs(t, err, ErrReplay)
	_, known, err := b.EventByKey(b.ctx(), tr.Key)
	require.NoError(t, err)
	require.False(t, known)
	_, err = b.Accept(b.ctx(), Effects{Event: &tr, Token: &Token{bob, "j1", exp}})
	require.NoError(t, err, "another issuer may use the same id")

	b.clock.Advance(time.Hour)
	_, err = b.UseToken(b.ctx(), alice, "j2", b.clock.Now().Add(time.Minute))
	require.NoError(t, err)
	var left int
	_, err = b.r.get(b.ctx(), "SELECT count(*) FROM tokens", nil, &left)
	require.NoError(t, err)
	require.Equal(t, 1, left, "expired tokens are pruned")
}

func TestHints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := Recheck{DID: alice, Collection: "c", Rkey: "r"}
	hint := func() {
		_, err := b.Accept(b.ctx(), Effects{Rechecks: []Recheck{h}, Cursor: &Cursor{Source: "jetstream", Host: "j", Protocol: "v1", Value: 1}})
		require.NoError(t, err)
	}
	due := func() []Recheck {
		rs, err := b.DueRechecks(b.ctx(), 10)
		require.NoError(t, err)
		return rs
	}
	hint()
	rs := due()
	require.Len(t, rs, 1)
	old := rs[0]
	require.NoError(t, b.PostponeRecheck(b.ctx(), old, "pds is down", b.clock.Now().Add(time.Minute)))
	require.Empty(t, due())
	b.clock.Advance(time.Minute)
	rs = due()
	require.Equal(t, 1, rs[0].Tries)
	require.Equal(t, "pds is down", rs[0].Reason)
	hint() // while a worker proves the older one
	_, err := b.Accept(b.ctx(), Effects{Settled: &old})
	require.NoError(t, err)
	require.Len(t, due(), 1, "a newer hint survives")
	newer := due()[0]
	require.Equal(t, old.Generation+1, newer.Generation)
	require.Zero(t, newer.Tries)
	_, err = b.Accept(b.ctx(), Effects{Settled: &newer})
	require.NoError(t, err)
	n, err := b.CountRechecks(b.ctx())
	require.NoError(t, err)
	require.Zero(t, n)
}

// Events come in the order of their repository, and one repository's flood or trouble delays no other.
func TestEventsInOrderAndFair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	accept := func(repo string) int64 {
		tr := b.trigger(repo, alice, "main")
		a, err := b.Accept(b.ctx(), Effects{Event: &tr})
		require.NoError(t, err)
		return a.EventID
	}
	next := func() (ids []int64) {
		es, err := b.NextEvents(b.ctx(), 10)
		require.NoError(t, err)
		for _, e := range es {
			ids = append(ids, e.ID)
		}
		return ids
	}
	a1, a2, b1 := accept(repoA), accept(repoA), accept(repoB)
	require.Equal(t, []int64{a1, b1}, next())
	require.NoError(t, b.PostponeEvent(b.ctx(), a1, "the knot does not answer", b.clock.Now().Add(time.Minute)))
	require.Equal(t, []int64{b1}, next())
	b.clock.Advance(time.Minute)
	require.NoError(t, b.SettleEvent(b.ctx(), a1, EventNoMatch, "nothing matched"))
	require.NoError(t, b.SettleEvent(b.ctx(), a1, EventNoMatch, "nothing matched"), "twice is once")
	require.ErrorIs(t, b.SettleEvent(b.ctx(), a1, EventGone, "x"), ErrConflict)
	require.Equal(t, []int64{a2, b1}, next())
	_, err := b.Enqueue(b.ctx(), Plan{Event: a1, Pipeline: pipeline.Pipeline{ID: "p", Repo: repoA, Owner: alice}})
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorIs(t, b.SettleEvent(b.ctx(), 999, EventGone, "x"), ErrNotFound)
}

// T06: a new owner has neither the former owner's secrets nor its collaborators.
func TestT06OwnerChangeSealsSecrets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	_, err := b.Accept(b.ctx(), Effects{Collaborators: []Collaborator{{Repo: repoA, DID: carol}}})
	require.NoError(t, err)
	owner, epoch, err := b.OwnerEpoch(b.ctx(), repoA)
	require.NoError(t, err)
	row := SealedSecret{Repo: repoA, Owner: owner, OwnerEpoch: epoch, Name: "TOKEN", Version: 1, KeyID: "k", Nonce: []byte{1}, Box: []byte{2}, CreatedBy: alice}
	require.NoError(t, b.PutSecret(b.ctx(), row))
	require.ErrorIs(t, b.PutSecret(b.ctx(), row), ErrConflict, "the same version again")
	require.True(t, b.may(carol, rbac.Secrets, repoA, alice))
	p := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))

	b.clock.Advance(time.Second)
	b.bind(repoA, bob)
	for _, list := range []func() ([]SealedSecret, error){
		func() ([]SealedSecret, error) { return b.SecretsOf(b.ctx(), repoA) },
		func() ([]SealedSecret, error) { return b.ListSecrets(b.ctx(), repoA) },
	} {
		ss, err := list()
		require.NoError(t, err)
		require.Empty(t, ss)
	}
	require.False(t, b.may(carol, rbac.Secrets, repoA, bob))
	require.False(t, b.may(alice, rbac.Secrets, repoA, bob))
	require.ErrorIs(t, b.PutSecret(b.ctx(), row), ErrConflict, "sealed for the former owner")
	was, err := b.DeleteSecret(b.ctx(), repoA, "TOKEN", bob)
	require.NoError(t, err)
	require.False(t, was)
	require.Nil(t, b.claim(anyWork), "what the former owner started does not start")
	require.Equal(t, pipeline.Refused, b.get(p.ID).Status)

	// Back to the first owner is a third epoch, not the first again.
	b.clock.Advance(time.Second)
	b.bind(repoA, alice)
	_, epoch, err = b.OwnerEpoch(b.ctx(), repoA)
	require.NoError(t, err)
	require.Equal(t, int64(3), epoch)
	ss, err := b.SecretsOf(b.ctx(), repoA)
	require.NoError(t, err)
	require.Empty(t, ss)
	tail, err := b.AuditTail(b.ctx(), 10)
	require.NoError(t, err)
	require.Equal(t, "repo.owner-changed", tail[0].Action)
}

func (b *bench) may(who string, a rbac.Action, repo, owner string) bool {
	b.t.Helper()
	g, err := b.Gate(b.ctx())
	require.NoError(b.t, err)
	return g.May(who, a, rbac.Repo{DID: repo, Owner: owner}).Allowed
}

// An older proof that commits later does not undo a newer one.
func TestOlderProofLoses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := b.clock.Now()
	b.clock.Advance(time.Minute)
	b.bind(repoA, bob)
	_, err := b.Accept(b.ctx(), Effects{Repos: []RepoBinding{{Repo: repoA, Owner: alice, VerifiedAt: at}}})
	require.NoError(t, err)
	r, ok, err := b.Repo(b.ctx(), repoA)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, bob, r.Owner)
}

// T11: whatever happens, the policy is what the tables say, and so is the gate.
func TestT11PolicyFollowsFromTheTables(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dids := []string{alice, bob, carol}
	repos := []string{repoA, repoB}
	rapid.Check(t, func(rt *rapid.T) {
		did := rapid.SampledFrom(dids)
		repo := rapid.SampledFrom(repos)
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			b.clock.Advance(time.Second)
			d, r, on := did.Draw(rt, "did"), repo.Draw(rt, "repo"), rapid.Bool().Draw(rt, "on")
			var err error
			switch rapid.IntRange(0, 7).Draw(rt, "op") {
			case 0:
				_, err = b.Accept(b.ctx(), Effects{Repos: []RepoBinding{{Repo: r, Owner: d, VerifiedAt: b.clock.Now(), Gone: !on}}})
			case 1:
				_, err = b.Accept(b.ctx(), Effects{Collaborators: []Collaborator{{r, d, !on}}})
			case 2:
				_, err = b.Accept(b.ctx(), Effects{ReplaceCollaborators: map[string][]string{r: rapid.SliceOfDistinct(did, rapid.ID).Draw(rt, "all")}})
			case 3:
				_, err = b.Accept(b.ctx(), Effects{Members: []Member{{DID: d, Removed: !on}}})
			case 4:
				err = map[bool]func() error{true: func() error { return b.Ban(b.ctx(), d, boss) }, false: func() error { return b.Unban(b.ctx(), d, boss) }}[on]()
			case 5:
				err = map[bool]func() error{true: func() error { return b.Allow(b.ctx(), d, boss) }, false: func() error { return b.Disallow(b.ctx(), d, boss) }}[on]()
			case 7:
				a := Account{DID: d, CheckedAt: b.clock.Now()}
				if !on {
					a.Inactive = rapid.SampledFrom(rbac.Inactive()).Draw(rt, "why")
				}
				_, err = b.Accept(b.ctx(), Effects{Accounts: []Account{a}})
			case 6: // a write that fails in the middle leaves nothing
				werr := b.write(b.ctx(), "fail", func(t *tx) error {
					if err := t.setRole(d, rbac.Member, byCommand, boss, on); err != nil {
						return err
					}
					if _, err := t.gate(); err != nil {
						return err
					}
					return errors.New("no")
				})
				if werr == nil {
					rt.Fatal("the failing write passed")
				}
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		err := b.write(b.ctx(), "compare", func(t *tx) error {
			have, err := t.rules("")
			if err != nil {
				return err
			}
			want, err := t.repoRules("")
			if err != nil {
				return err
			}
			rows, err := t.query("SELECT DISTINCT 0, did, role, 'spindle' FROM members")
			if err != nil {
				return err
			}
			_, ms, err := scanRules(rows)
			if err != nil {
				return err
			}
			paused, err := t.accountRules()
			if err != nil {
				return err
			}
			require.ElementsMatch(rt, append(append(want, ms...), paused...), have)
			g, err := t.gate()
			if err != nil {
				return err
			}
			fresh, err := rbac.New(g.Version(), rbac.Open, have)
			if err != nil {
				return err
			}
			outside, err := t.s.Gate(b.ctx())
			if err != nil {
				return err
			}
			for _, d := range dids {
				for _, r := range repos {
					q := rbac.Repo{DID: r, Owner: d}
					require.Equal(rt, fresh.Admit(q), g.Admit(q))
					require.Equal(rt, fresh.Admit(q), outside.Admit(q))
					require.Equal(rt, fresh.May(d, rbac.Secrets, q), g.May(d, rbac.Secrets, q))
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// A policy row changed behind the store's back is gone after the next start, and the trail says so.
func TestT11DriftIsMendedAtStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.write(b.ctx(), "drift", func(t *tx) error {
		return t.exec1("INSERT INTO casbin_rule VALUES ('g', ?, 'admin', 'spindle')", bob)
	}))
	b.reopen()
	require.False(t, b.may(bob, rbac.Administer, "", ""))
	require.True(t, b.may(boss, rbac.Administer, "", ""))
	tail, err := b.AuditTail(b.ctx(), 1)
	require.NoError(t, err)
	require.Equal(t, "policy.repaired", tail[0].Action)
	b.reopen(func(c *Config) { c.Owner, c.Admins = alice, []string{carol} })
	require.False(t, b.may(boss, rbac.Administer, "", ""), "a former owner")
	require.True(t, b.may(alice, rbac.Administer, "", ""))
	require.True(t, b.may(carol, rbac.Administer, "", ""))
	require.ErrorIs(t, b.Ban(b.ctx(), alice, carol), ErrConflict)
}
