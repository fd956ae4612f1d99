package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
	"spindle/rbac"
)

// T01: every kind of trigger meets the same gate, at the plan, at the start and at the release of secrets.
func TestT01AdmissionHoldsForEveryTrigger(t *testing.T) {
	t.Parallel()
	kinds := []pipeline.Kind{pipeline.Push, pipeline.PullRequest, pipeline.Manual, pipeline.Schedule}
	cases := map[string]struct {
		adm   rbac.Admission
		setup func(b *bench)
		code  string // "" is admitted
	}{
		"open":        {rbac.Open, func(*bench) {}, ""},
		"not allowed": {rbac.Closed, func(*bench) {}, rbac.CodeNotAllowed},
		"allowed":     {rbac.Closed, func(b *bench) { require.NoError(b.t, b.Allow(b.ctx(), alice, boss)) }, ""},
		"disallowed": {rbac.Closed, func(b *bench) {
			require.NoError(b.t, b.Allow(b.ctx(), alice, boss))
			require.NoError(b.t, b.Disallow(b.ctx(), alice, boss))
		}, rbac.CodeNotAllowed},
		"banned owner": {rbac.Open, func(b *bench) { require.NoError(b.t, b.Ban(b.ctx(), alice, boss)) }, rbac.CodeBanned},
		"banned repo":  {rbac.Open, func(b *bench) { require.NoError(b.t, b.Ban(b.ctx(), repoA, boss)) }, rbac.CodeBanned},
		"unbanned": {rbac.Open, func(b *bench) {
			require.NoError(b.t, b.Ban(b.ctx(), alice, boss))
			require.NoError(b.t, b.Unban(b.ctx(), alice, boss))
		}, ""},
		"owner suspended": {rbac.Open, func(b *bench) { b.account(alice, rbac.Suspended) }, rbac.CodeInactive},
		"repo taken down": {rbac.Open, func(b *bench) { b.account(repoA, rbac.Takendown) }, rbac.CodeInactive},
		"owner active again": {rbac.Open, func(b *bench) {
			b.account(alice, rbac.Deactivated)
			b.account(alice, "")
		}, ""},
		"owner changed": {rbac.Open, func(b *bench) { b.clock.Advance(1e9); b.bind(repoA, bob) }, rbac.CodeOwnerChanged},
		"gone":          {rbac.Open, func(b *bench) { b.gone(repoA, alice) }, CodeGone},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(cfg *Config) { cfg.Admission = c.adm })
			b.bind(repoA, alice)
			c.setup(b)
			for _, k := range kinds {
				tr := b.trigger(repoA, alice, "main")
				tr.Kind = k
				a, err := b.Accept(b.ctx(), Effects{Event: &tr})
				require.NoError(t, err)
				p, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: pipeline.ID(b.ids.Next()), Repo: repoA, Owner: alice,
					Workflows: []pipeline.Workflow{flow("test", pipeline.Waiting)}}})
				v, _, verr := b.EventByKey(b.ctx(), tr.Key)
				require.NoError(t, verr)
				if c.code == "" {
					require.NoError(t, err)
					require.Equal(t, EventDone, v.State)
					require.NotEmpty(t, p.ID)
					require.NotNil(t, b.claim(anyWork))
					continue
				}
				var r *Refusal
				require.ErrorAs(t, err, &r)
				require.Equal(t, c.code, r.Decision.Code)
				require.Contains(t, []EventState{EventRefused, EventGone}, v.State)
				require.Equal(t, r.Decision.Sentence, v.Reason)
				require.Nil(t, b.claim(anyWork))
			}
		})
	}
}

// account stores that did is not active for the reason why, or active with none.
func (b *bench) account(did string, why rbac.Role) {
	b.t.Helper()
	b.clock.Advance(time.Second)
	_, err := b.Accept(b.ctx(), Effects{Accounts: []Account{{DID: did, Inactive: why, CheckedAt: b.clock.Now()}}})
	require.NoError(b.t, err)
}

func (b *bench) gone(repo, owner string) {
	b.t.Helper()
	b.clock.Advance(time.Second)
	_, err := b.Accept(b.ctx(), Effects{Repos: []RepoBinding{{Repo: repo, Owner: owner, VerifiedAt: b.clock.Now(), Gone: true}}})
	require.NoError(b.t, err)
}

// A repository that was never bound here starts nothing.
func TestT05UnboundRepositoryStartsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.plan(repoB, bob, "main", flow("test", pipeline.Waiting))
	var r *Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, CodeGone, r.Decision.Code)
}

// T01: a ban between the plan and the start, or between the start and the secrets, still counts.
func TestT01BanAfterThePlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	run := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	c := b.mustClaim()
	wait := b.mustPlan(repoA, alice, "dev", flow("test", pipeline.Waiting), flow("held", pipeline.Held))
	require.NoError(t, b.Ban(b.ctx(), alice, boss))
	for _, w := range b.get(wait.ID).Workflows {
		require.Equal(t, pipeline.Refused, w.Status)
		require.Contains(t, w.Reason, "banned")
	}
	require.Nil(t, b.claim(anyWork))
	by, _, err := b.Renew(b.ctx(), c.Lease, time.Minute)
	require.NoError(t, err)
	require.Equal(t, boss, by, "what runs is told to end")
	var r *Refusal
	require.ErrorAs(t, b.MarkReleased(b.ctx(), c.Lease), &r)
	_, err = b.Apply(b.ctx(), run.ID, "test", pipeline.Finished{Epoch: 1, Status: pipeline.Cancelled})
	require.NoError(t, err)
	require.NoError(t, b.AuditVerify(b.ctx()))
}

// T01: pausing an owner (closed admission, no longer allowed) holds at the dequeue as well.
func TestT01PausedAtTheDequeue(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Admission = rbac.Closed })
	b.bind(repoA, alice)
	require.NoError(t, b.Allow(b.ctx(), alice, boss))
	p := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	require.NoError(t, b.Disallow(b.ctx(), alice, boss))
	require.Nil(t, b.claim(anyWork))
	require.Equal(t, pipeline.Refused, b.get(p.ID).Status)
	require.Contains(t, b.get(p.ID).Workflows[0].Reason, "SPINDLE_SERVER_MEMBERS")
}

// T13: an approval is for one run, by somebody else than its actor who may approve, once.
func TestT13Approval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	held := func() pipeline.Pipeline {
		tr := b.trigger(repoA, bob, "main")
		tr.Kind, tr.Pull = pipeline.PullRequest, &pipeline.Pull{SourceRepo: repoB, Head: tr.Commit, Round: "at://x"}
		a, err := b.Accept(b.ctx(), Effects{Event: &tr})
		require.NoError(t, err)
		p, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: pipeline.ID(b.ids.Next()), Repo: repoA, Owner: alice,
			Trust: pipeline.TrustFork, Workflows: []pipeline.Workflow{flow("test", pipeline.Held), flow("bad", pipeline.Invalid)}}})
		require.NoError(t, err)
		return p
	}
	p, other := held(), held()
	require.Nil(t, b.claim(anyWork), "held work does not start")
	code := func(err error) string {
		var r *Refusal
		require.ErrorAs(t, err, &r)
		return r.Decision.Code
	}
	require.Equal(t, CodeSelfApproval, code(b.Approve(b.ctx(), p.ID, bob, nil, nil)))
	require.Equal(t, rbac.CodeNotCollaborator, code(b.Approve(b.ctx(), p.ID, carol, nil, nil)))
	require.Equal(t, "no", code(b.Approve(b.ctx(), p.ID, alice, nil, func(*rbac.Gate, pipeline.Pipeline) rbac.Decision { return rbac.Decision{Code: "no"} })))
	require.ErrorIs(t, b.Approve(b.ctx(), "nothing", alice, nil, nil), ErrNotFound)
	require.Equal(t, pipeline.Held, b.get(p.ID).Status)
	require.NoError(t, b.Approve(b.ctx(), p.ID, alice, nil, nil))
	got := b.get(p.ID)
	require.Equal(t, pipeline.TrustApproved, got.Trust)
	require.Equal(t, alice, got.ApprovedBy)
	require.ErrorIs(t, b.Approve(b.ctx(), p.ID, alice, nil, nil), ErrNotBlocked)
	require.Equal(t, pipeline.Held, b.get(other.ID).Status, "an approval covers one run")
	require.Equal(t, p.ID, b.mustClaim().Pipeline.ID)
	require.Nil(t, b.claim(anyWork))

	// Nobody raises trust by hand, nor without an approver.
	for _, q := range []string{"UPDATE pipelines SET trust = 3", "UPDATE pipelines SET trust = 1 WHERE approved_by = ''"} {
		err := b.write(b.ctx(), "raise", func(t *tx) error { _, err := t.exec(q); return err })
		require.ErrorContains(t, err, "trust never changes")
	}
	_, err := b.Apply(b.ctx(), other.ID, "test", pipeline.Approved{By: "me"})
	require.ErrorIs(t, err, ErrConflict)

	b.clock.Advance(73 * time.Hour)
	sw, err := b.Expired(b.ctx())
	require.NoError(t, err)
	require.Equal(t, 1, sw.Expired)
	require.Equal(t, pipeline.Expired, b.get(other.ID).Workflows[0].Status)
	require.ErrorIs(t, b.Approve(b.ctx(), other.ID, alice, nil, nil), ErrNotBlocked)
}

// T14: what was planned is what runs; nothing changes a spec afterwards.
func TestT14SpecNeverChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	swapped := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	err := b.write(b.ctx(), "swap", func(t *tx) error { return t.exec1("UPDATE workflows SET spec = x'00'") })
	require.ErrorContains(t, err, "never changes")
	require.NoError(t, b.write(b.ctx(), "swap", func(t *tx) error {
		if _, err := t.exec("DROP TRIGGER workflows_spec"); err != nil {
			return err
		}
		return t.exec1("UPDATE workflows SET spec = x'00'")
	}))
	next := b.mustPlan(repoA, alice, "other", flow("test", pipeline.Waiting))
	c, err := b.Claim(b.ctx(), anyWork)
	require.NoError(t, err)
	require.Equal(t, next.ID, c.Lease.Pipeline, "the work behind what is damaged goes on")
	w := b.get(swapped.ID).Workflows[0]
	require.Equal(t, pipeline.Error, w.Status)
	require.Contains(t, w.Reason, "damaged")
}

// P15: an owner with a thousand jobs delays another's next job by one turn at most.
func TestP15OwnersTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	b.bind(repoB, bob)
	var many []pipeline.Workflow
	for i := range 40 {
		many = append(many, flow(string(rune('a'+i%26))+string(rune('a'+i/26)), pipeline.Waiting))
	}
	b.mustPlan(repoA, alice, "main", many...)
	b.clock.Advance(time.Second)
	b.mustPlan(repoB, bob, "main", flow("b1", pipeline.Waiting), flow("b2", pipeline.Waiting))
	finish := func(c *Claimed) {
		_, err := b.Apply(b.ctx(), c.Lease.Pipeline, c.Lease.Workflow, pipeline.Finished{Epoch: c.Lease.Epoch, Status: pipeline.Passed})
		require.NoError(t, err)
	}
	// One seat: the turns alternate although all of alice's work is older.
	var order []string
	for range 4 {
		c := b.mustClaim()
		order = append(order, c.Pipeline.Owner)
		finish(c)
	}
	require.Equal(t, []string{alice, bob, alice, bob}, order)
	// Many seats: a cap leaves a reason.
	capped := anyWork
	capped.PerOwner = 2
	require.NotNil(t, b.claim(capped))
	require.NotNil(t, b.claim(capped))
	require.Nil(t, b.claim(capped))
	ps, _, err := b.Pipelines(b.ctx(), Query{Repo: repoA})
	require.NoError(t, err)
	told := 0
	for _, w := range ps[0].Workflows {
		if w.Status == pipeline.Waiting {
			require.Contains(t, w.Reason, "already runs 2 workflows")
			told++
		}
	}
	require.Equal(t, 36, told)
	last, err := b.LastChange(b.ctx())
	require.NoError(t, err)
	require.Nil(t, b.claim(capped))
	after, err := b.LastChange(b.ctx())
	require.NoError(t, err)
	require.Equal(t, last, after, "a reason is told once")
}

func TestLabelsAndEngines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	vm := flow("vm", pipeline.Waiting)
	vm.Engine = "microvm"
	p := b.mustPlan(repoA, alice, "main", flow("gpu", pipeline.Waiting, "gpu", "amd64"), vm, flow("plain", pipeline.Waiting))
	r := anyWork
	r.Labels = []string{"amd64"}
	require.Equal(t, "plain", b.claim(r).Workflow.Name, "work that does not fit blocks nothing behind it")
	require.Nil(t, b.claim(r))
	ws := b.get(p.ID).Workflows
	require.Contains(t, ws[0].Reason, `no runner has label "gpu" (there are: amd64)`)
	require.Contains(t, ws[1].Reason, `no runner offers engine "microvm" (there are: dummy)`)
	r.Labels = []string{"amd64", "gpu", "kvm"}
	c := b.claim(r)
	require.Equal(t, "gpu", c.Workflow.Name)
	require.Equal(t, []string{"gpu", "amd64"}, c.Workflow.Labels)
	require.Empty(t, c.Workflow.Reason)
	b.clock.Advance(25 * time.Hour)
	sw, err := b.Expired(b.ctx())
	require.NoError(t, err)
	require.Equal(t, 1, sw.Expired, "what no runner takes ends by itself")
}

// P4: after a lease is lost nothing of the former attempt is believed.
func TestP4StaleEpochHasNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	old := b.mustClaim().Lease
	require.NoError(t, b.StartStep(b.ctx(), old, pipeline.Step{Index: 0, Name: "s", Kind: pipeline.UserStep}))
	b.clock.Advance(time.Minute + 5*time.Second)
	sw, err := b.Expired(b.ctx())
	require.NoError(t, err)
	require.Empty(t, sw.Requeued, "the margin after the lease")
	b.clock.Advance(time.Second)
	sw, err = b.Expired(b.ctx())
	require.NoError(t, err)
	require.Equal(t, []pipeline.Lease{old}, sw.Requeued)
	require.Contains(t, b.get(p.ID).Workflows[0].Reason, "attempt 2 of 3 follows")
	require.Equal(t, pipeline.Error, b.get(p.ID).Workflows[0].Steps[0].Status, "an open step ends with its attempt")
	stale := func() {
		t.Helper()
		_, _, err := b.Renew(b.ctx(), old, time.Minute)
		require.ErrorIs(t, err, ErrStale)
		require.ErrorIs(t, b.StartStep(b.ctx(), old, pipeline.Step{Index: 1, Kind: pipeline.UserStep}), ErrStale)
		require.ErrorIs(t, b.EndStep(b.ctx(), old, pipeline.Step{Index: 0, Kind: pipeline.UserStep, Status: pipeline.Passed}), ErrStale)
		require.ErrorIs(t, b.MarkReleased(b.ctx(), old), ErrStale)
		_, err = b.Apply(b.ctx(), p.ID, "test", pipeline.Finished{Epoch: old.Epoch, Status: pipeline.Passed})
		require.ErrorIs(t, err, ErrStale)
	}
	stale()
	again := b.mustClaim().Lease
	require.Equal(t, 2, again.Attempt)
	require.Greater(t, again.Epoch, old.Epoch)
	stale()
	thief := again
	thief.Holder = "somebody"
	_, _, err = b.Renew(b.ctx(), thief, time.Minute)
	require.ErrorIs(t, err, ErrStale)

	// An attempt that had secrets is not repeated, nor the last one.
	require.NoError(t, b.MarkReleased(b.ctx(), again))
	requeued, failed, err := b.Recover(b.ctx(), "local/")
	require.NoError(t, err)
	require.Empty(t, requeued)
	require.Len(t, failed, 1)
	w := b.get(p.ID).Workflows[0]
	require.Equal(t, pipeline.Error, w.Status)
	require.Contains(t, w.Reason, "interrupted by a restart of the spindle")
}

func TestRecoverRepeatsAtMostTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("test", pipeline.Waiting))
	for i := 1; i <= 3; i++ {
		require.Equal(t, i, b.mustClaim().Lease.Attempt)
		b.reopen()
		again, failed, err := b.Recover(b.ctx(), "remote/")
		require.NoError(t, err)
		require.Empty(t, append(again, failed...), "another's attempts are left alone")
		again, failed, err = b.Recover(b.ctx(), "local/")
		require.NoError(t, err)
		require.Len(t, again, map[bool]int{true: 1, false: 0}[i < 3])
		require.Len(t, failed, map[bool]int{true: 0, false: 1}[i < 3])
	}
	require.Equal(t, pipeline.Error, b.get(p.ID).Status)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	p := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), flow("b", pipeline.Waiting), flow("c", pipeline.Invalid))
	c := b.mustClaim()
	require.Equal(t, "a", c.Workflow.Name)
	_, err := b.Cancel(b.ctx(), p.ID, []string{"zzz"}, alice, "", pipeline.Cancelled)
	require.ErrorIs(t, err, ErrNotFound)
	rang := b.Changed()
	n, err := b.Cancel(b.ctx(), p.ID, nil, alice, "not needed", pipeline.Cancelled)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	<-rang
	got := b.get(p.ID)
	require.Equal(t, pipeline.Preparing, got.Workflows[0].Status)
	require.Equal(t, alice, got.Workflows[0].CancelBy)
	require.Equal(t, pipeline.Cancelled, got.Workflows[1].Status)
	n, err = b.Cancel(b.ctx(), p.ID, nil, bob, "again", pipeline.Cancelled)
	require.NoError(t, err)
	require.Zero(t, n)
	// A holder that dies instead of obeying does not make it run again.
	b.clock.Advance(2 * time.Minute)
	sw, err := b.Expired(b.ctx())
	require.NoError(t, err)
	require.Len(t, sw.Failed, 1)
	require.Equal(t, pipeline.Cancelled, b.get(p.ID).Workflows[0].Status)
	_, err = b.Cancel(b.ctx(), "nothing", nil, alice, "", pipeline.Cancelled)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestNewerPushSupersedesWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	running := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting), flow("b", pipeline.Waiting))
	require.Equal(t, running.ID, b.mustClaim().Pipeline.ID)
	waiting := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting))
	elsewhere := b.mustPlan(repoA, alice, "dev", flow("a", pipeline.Waiting))
	newest := b.mustPlan(repoA, alice, "main", flow("a", pipeline.Waiting))
	require.Equal(t, pipeline.Superseded, b.get(waiting.ID).Status)
	require.Contains(t, b.get(waiting.ID).Workflows[0].Reason, string(newest.ID))
	require.Equal(t, pipeline.Waiting, b.get(elsewhere.ID).Status)
	require.Equal(t, pipeline.Preparing, b.get(running.ID).Status, "what has begun goes on")
	require.Equal(t, pipeline.Waiting, b.get(running.ID).Workflows[1].Status)
	require.Equal(t, pipeline.Waiting, b.get(newest.ID).Status)
}

func TestPlansAreChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.bind(repoA, alice)
	tr := b.trigger(repoA, alice, "main")
	a, err := b.Accept(b.ctx(), Effects{Event: &tr})
	require.NoError(t, err)
	for name, p := range map[string]pipeline.Pipeline{
		"no id":            {Repo: repoA, Owner: alice},
		"running at birth": {ID: "x", Repo: repoA, Owner: alice, Workflows: []pipeline.Workflow{flow("a", pipeline.Running)}},
		"same name":        {ID: "x", Repo: repoA, Owner: alice, Workflows: []pipeline.Workflow{flow("a", pipeline.Waiting), flow("a", pipeline.Waiting)}},
		"trust":            {ID: "x", Repo: repoA, Owner: alice, Trust: 9},
		"other repo":       {ID: "x", Repo: repoB, Owner: alice},
	} {
		_, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: p})
		require.Error(t, err, name)
	}
	es, err := b.NextEvents(b.ctx(), 10)
	require.NoError(t, err)
	require.Len(t, es, 1, "a bad plan leaves the event pending")
	p, err := b.Enqueue(b.ctx(), Plan{Event: a.EventID, Pipeline: pipeline.Pipeline{ID: "x", Repo: repoA, Owner: alice, Trigger: pipeline.Trigger{Commit: "swapped"}}})
	require.NoError(t, err)
	require.Equal(t, tr.Commit, p.Trigger.Commit, "what was accepted is what runs")
	require.Equal(t, pipeline.Skipped, p.Status)
}
