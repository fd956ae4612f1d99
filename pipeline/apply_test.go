package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	. "spindle/pipeline"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// at is a workflow that stands at s in its first attempt.
func at(s Status) Workflow {
	w := Workflow{Pipeline: "3k", Name: "test", Status: s, CreatedAt: noon}
	switch {
	case s == Waiting:
		w.ReadyAt = noon
	case s.Active():
		w.Attempt, w.Epoch, w.LeaseUntil, w.StartedAt = 1, 1, noon.Add(time.Minute), noon
	case s.Terminal():
		w.FinishedAt = noon
	}
	return w
}

// moves is every move that a fact may make, written down apart from the code: anything else is refused.
var moves = map[string]map[Status]Status{
	"approved": {Held: Waiting},
	"leased":   {Waiting: Preparing},
	"began":    {Preparing: Running, Running: Running},
	"passed":   {Preparing: Passed, Running: Passed},
	"failed":   {Preparing: Failed, Running: Failed},
	"error":    {Preparing: Error, Running: Error},
	"timeout":  {Preparing: Timeout, Running: Timeout},
	"stopped":  {Preparing: Cancelled, Running: Cancelled},
	"cancel":   {Held: Cancelled, Waiting: Cancelled, Preparing: Preparing, Running: Running},
	"newer":    {Held: Superseded, Waiting: Superseded, Preparing: Preparing, Running: Running},
	"refuse":   {Held: Refused, Waiting: Refused, Preparing: Preparing, Running: Running},
	"expire":   {Held: Expired, Waiting: Expired, Preparing: Preparing, Running: Running},
	"again":    {Preparing: Waiting, Running: Waiting},
	"lost":     {Preparing: Error, Running: Error},
}

// fact is the fact of that name, told by the attempt with that epoch.
func fact(name string, epoch int64) Fact {
	ask := func(as Status) Fact { return CancelAsked{By: "did:plc:alice", Reason: "because", As: as} }
	switch name {
	case "approved":
		return Approved{By: "did:plc:alice"}
	case "leased":
		return Leased{Holder: "local", Until: noon.Add(time.Hour)}
	case "began":
		return Began{Epoch: epoch}
	case "stopped":
		return Finished{Epoch: epoch, Status: Cancelled}
	case "cancel":
		return ask(Cancelled)
	case "newer":
		return ask(Superseded)
	case "refuse":
		return ask(Refused)
	case "expire":
		return ask(Expired)
	case "again":
		return Lost{Epoch: epoch, Reason: "the runner is gone", Again: true}
	case "lost":
		return Lost{Epoch: epoch, Reason: "the runner is gone"}
	}
	return Finished{Epoch: epoch, Status: Status(name)}
}

func TestApplyMovesAsTheTableSays(t *testing.T) {
	t.Parallel()
	for name, table := range moves {
		for _, from := range Statuses() {
			t.Run(name+" while "+string(from), func(t *testing.T) {
				t.Parallel()
				before := at(from)
				after, err := Apply(before, fact(name, 1), noon.Add(time.Second))
				to, allowed := table[from]
				if !allowed {
					require.Error(t, err)
					require.Equal(t, before, after, "a refused fact changes nothing")
					return
				}
				require.NoError(t, err)
				require.Equal(t, to, after.Status)
			})
		}
	}
}

func TestApplyNamesWhatItRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		w    Workflow
		f    Fact
		want error
	}{
		"ended":               {at(Passed), Finished{Status: Failed}, ErrEnded},
		"older epoch":         {at(Running), Finished{Epoch: 0, Status: Passed}, ErrStale},
		"epoch of the future": {at(Running), Finished{Epoch: 2, Status: Passed}, ErrStale},
		"nothing leased":      {at(Waiting), Began{}, ErrStale},
		"finish as running":   {at(Running), Finished{Epoch: 1, Status: Running}, ErrMove},
		"finish as refused":   {at(Running), Finished{Epoch: 1, Status: Refused}, ErrMove},
		"finish as nonsense":  {at(Running), Finished{Epoch: 1, Status: "green"}, ErrMove},
		"cancel as passed":    {at(Waiting), CancelAsked{By: "x", As: Passed}, ErrMove},
		"cancel by nobody":    {at(Running), CancelAsked{Reason: "r", As: Cancelled}, ErrMove},
		"approve what waits":  {at(Waiting), Approved{}, ErrMove},
		"lease what is held":  {at(Held), Leased{}, ErrMove},
		"no fact":             {at(Waiting), nil, ErrMove},
		"a pointer":           {at(Held), &Approved{}, ErrMove},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, err := Apply(c.w, c.f, noon)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.w, after)
		})
	}
}

func TestApplyLeaseCountsAttemptsAndKeepsTheFirstStart(t *testing.T) {
	t.Parallel()
	w := at(Waiting)
	w.Reason = "no runner has label \"gpu\""
	w, err := Apply(w, Leased{Holder: "local", Until: noon.Add(time.Minute)}, noon)
	require.NoError(t, err)
	require.Equal(t, 1, w.Attempt)
	require.EqualValues(t, 1, w.Epoch)
	require.Empty(t, w.Reason, "why it waited is over")
	require.Equal(t, noon.Add(time.Minute), w.LeaseUntil)
	w, err = Apply(w, Lost{Epoch: 1, Reason: "gone", Again: true}, noon.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, "gone", w.Reason)
	require.Zero(t, w.LeaseUntil)
	require.Equal(t, noon.Add(time.Minute), w.ReadyAt)
	w, err = Apply(w, Leased{Holder: "local", Until: noon.Add(time.Hour)}, noon.Add(2*time.Minute))
	require.NoError(t, err)
	require.Equal(t, 2, w.Attempt)
	require.EqualValues(t, 2, w.Epoch)
	require.Equal(t, noon, w.StartedAt)
}

// B-061: whatever arrives after a cancel that was carried out does not bring the workflow back.
func TestB061CancelledStaysCancelled(t *testing.T) {
	t.Parallel()
	for _, as := range []Status{Cancelled, Superseded, Refused, Expired} {
		w, err := Apply(at(Waiting), CancelAsked{By: "spindle", Reason: "r", As: as}, noon)
		require.NoError(t, err)
		require.Equal(t, as, w.Status)
		for name := range moves {
			after, err := Apply(w, fact(name, w.Epoch), noon)
			require.ErrorIs(t, err, ErrEnded, name)
			require.Equal(t, w, after, name)
		}
	}
}

// B-093: a wish that came too late does not turn a pass into a cancel, and the record says so.
func TestB093CancelWhileRunning(t *testing.T) {
	t.Parallel()
	asked, err := Apply(at(Running), CancelAsked{By: "did:plc:alice", Reason: "not needed", As: Superseded}, noon)
	require.NoError(t, err)
	require.Equal(t, Running, asked.Status)
	require.Equal(t, "did:plc:alice", asked.CancelBy)
	again, err := Apply(asked, CancelAsked{By: "did:plc:bob", Reason: "me too", As: Cancelled}, noon)
	require.NoError(t, err)
	require.Equal(t, asked, again, "the first wish counts")

	obeyed, err := Apply(asked, Finished{Epoch: 1, Status: Cancelled, Reason: "stopped"}, noon)
	require.NoError(t, err)
	require.Equal(t, Cancelled, obeyed.Status)
	require.Equal(t, "not needed", obeyed.Reason, "the reason is that of who asked")

	late, err := Apply(asked, Finished{Epoch: 1, Status: Passed}, noon)
	require.NoError(t, err)
	require.Equal(t, Passed, late.Status)
	require.Contains(t, late.Reason, "had passed before the wish of did:plc:alice")

	gone, err := Apply(asked, Lost{Epoch: 1, Reason: "the runner is gone", Again: true}, noon)
	require.NoError(t, err)
	require.Equal(t, Cancelled, gone.Status, "what was to end is not begun again")
	require.Equal(t, "not needed", gone.Reason)
}

func TestEveryEndSaysWhy(t *testing.T) {
	t.Parallel()
	for _, from := range []Status{Preparing, Running} {
		for _, s := range []Status{Failed, Error, Timeout, Cancelled} {
			w, err := Apply(at(from), Finished{Epoch: 1, Status: s}, noon)
			require.NoError(t, err)
			require.NotEmpty(t, w.Reason, s)
		}
		w, err := Apply(at(from), Lost{Epoch: 1}, noon)
		require.NoError(t, err)
		require.Contains(t, w.Reason, "not your code")
	}
	w, err := Apply(at(Waiting), CancelAsked{By: "did:plc:bob", As: Superseded}, noon)
	require.NoError(t, err)
	require.Equal(t, "superseded by did:plc:bob", w.Reason)
	w, err = Apply(at(Running), Finished{Epoch: 1, Status: Passed}, noon)
	require.NoError(t, err)
	require.Empty(t, w.Reason, "what passed needs no reason")
}

// Whatever facts arrive in whatever order, the promises of the package hold after each of them.
func TestApplyKeepsItsPromisesInAnyOrder(t *testing.T) {
	t.Parallel()
	names := make([]string, 0, len(moves))
	for name := range moves {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := at(rapid.SampledFrom([]Status{Held, Waiting, Invalid, Skipped, Refused}).Draw(t, "born"))
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "facts") {
			now = now.Add(time.Second)
			epoch := w.Epoch + rapid.Int64Range(-2, 1).Draw(t, "epoch offset")
			name := rapid.SampledFrom(names).Draw(t, "fact")
			before := w
			after, err := Apply(before, fact(name, epoch), now)
			checkMove(t, before, after, name, epoch, err)
			w = after
		}
	})
}

func checkMove(t *rapid.T, before, after Workflow, name string, epoch int64, err error) {
	ofAttempt := !oneOf(name, "approved", "leased", "cancel", "newer", "refuse", "expire")
	switch {
	case before.Status.Terminal():
		require.ErrorIs(t, err, ErrEnded)
	case ofAttempt && (epoch != before.Epoch || !before.Status.Active()):
		require.ErrorIs(t, err, ErrStale)
	}
	if err != nil {
		require.Equal(t, before, after)
		return
	}
	to, allowed := moves[name][before.Status]
	require.True(t, allowed, "%s while %s", name, before.Status)
	if before.CancelBy != "" && oneOf(name, "again", "lost") {
		to = Cancelled
	}
	require.Equal(t, to, after.Status)
	require.GreaterOrEqual(t, after.Epoch, before.Epoch)
	require.Equal(t, after.Epoch-before.Epoch, int64(after.Attempt-before.Attempt), "an epoch for each attempt")
	require.Equal(t, name == "leased", after.Epoch > before.Epoch)
	require.Equal(t, after.Status.Active(), !after.LeaseUntil.IsZero())
	require.Equal(t, after.Status.Terminal(), !after.FinishedAt.IsZero())
	if after.Status.Terminal() && after.Status != Passed {
		require.NotEmpty(t, after.Reason)
	}
	if before.CancelBy != "" {
		require.Equal(t, before.CancelBy, after.CancelBy)
		require.NotEqual(t, Waiting, after.Status)
	}
}

func oneOf(s string, of ...string) bool {
	for _, o := range of {
		if s == o {
			return true
		}
	}
	return false
}

// P4: once an attempt was replaced, nothing that it says has an effect, however the replacement goes.
func TestP4FactsOfAnOlderEpochHaveNoEffect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := at(Waiting)
		for range rapid.IntRange(1, 5).Draw(t, "attempts") {
			var err error
			w, err = Apply(w, fact("leased", 0), noon)
			require.NoError(t, err)
			for old := range w.Epoch {
				for _, name := range []string{"began", "passed", "failed", "stopped", "lost", "again"} {
					after, err := Apply(w, fact(name, old), noon)
					require.ErrorIs(t, err, ErrStale, fmt.Sprint(name, " of epoch ", old))
					require.Equal(t, w, after)
				}
			}
			w, err = Apply(w, fact("again", w.Epoch), noon)
			require.NoError(t, err)
		}
	})
}
