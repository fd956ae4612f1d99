package pipeline_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	. "spindle/pipeline"
)

// The two vocabularies side by side: ours, and the network's six words that older clients know.
func TestStatusWords(t *testing.T) {
	t.Parallel()
	cases := []struct {
		s                   Status
		wire, symbol, label string
		alive, active, good bool
	}{
		{Waiting, "pending", "◔", "waiting", true, false, false},
		{Held, "pending", "⏸", "needs approval", true, false, false},
		{Preparing, "running", "◑", "starting", true, true, false},
		{Running, "running", "▶", "running", true, true, false},
		{Passed, "success", "✓", "passed", false, false, true},
		{Failed, "failed", "✗", "failed", false, false, false},
		{Error, "failed", "!", "error", false, false, false},
		{Timeout, "timeout", "⧖", "timed out", false, false, false},
		{Cancelled, "cancelled", "⊘", "cancelled", false, false, false},
		{Superseded, "cancelled", "⊘", "superseded", false, false, false},
		{Skipped, "success", "○", "skipped", false, false, true},
		{Invalid, "failed", "✗", "invalid", false, false, false},
		{Refused, "failed", "⊘", "refused", false, false, false},
		{Expired, "cancelled", "⊘", "expired", false, false, false},
		{"green", "failed", "?", "green", false, false, false},
	}
	var all []Status
	for _, c := range cases {
		t.Run(string(c.s), func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.wire, c.s.Wire())
			require.Equal(t, c.symbol, c.s.Symbol())
			require.Equal(t, c.label, c.s.Label())
			require.Equal(t, c.alive, !c.s.Terminal())
			require.Equal(t, c.active, c.s.Active())
			require.Equal(t, c.good, c.s.Good())
		})
		all = append(all, c.s)
	}
	require.ElementsMatch(t, all[:len(all)-1], Statuses(), "the table has every status")
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	worstFirst := []Status{
		Running, Preparing, Held, Waiting,
		Failed, Error, Timeout, Invalid, Refused, Expired, Cancelled, Superseded, Passed, Skipped,
	}
	require.ElementsMatch(t, Statuses(), worstFirst)
	// Every mix of any size: 2^14 sets.
	for set := range 1 << len(worstFirst) {
		var mix []Status
		want := Skipped
		for i := len(worstFirst) - 1; i >= 0; i-- {
			if set>>i&1 == 1 {
				mix = append(mix, worstFirst[i])
				want = worstFirst[i]
			}
		}
		if got := Summarize(mix); got != want {
			t.Fatalf("Summarize(%v) = %s, want %s", mix, got, want)
		}
	}
	require.Equal(t, Error, Summarize([]Status{Passed, "green"}), "what is not understood is not good")
	require.Equal(t, Failed, Summarize([]Status{"green", Failed}))
	require.Equal(t, Running, Summarize([]Status{"", Running}))
}

func TestSummarizeDoesNotDependOnOrderOrNumber(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ss := rapid.SliceOf(rapid.SampledFrom(Statuses())).Draw(t, "statuses")
		want := Summarize(ss)
		require.Equal(t, want, Summarize(rapid.Permutation(ss).Draw(t, "order")))
		require.Equal(t, want, Summarize(append(slices.Clone(ss), ss...)))
		alive := slices.ContainsFunc(ss, func(s Status) bool { return !s.Terminal() })
		require.Equal(t, alive, !want.Terminal(), "a pipeline has ended when all of its workflows have")
		if want.Good() {
			require.False(t, slices.ContainsFunc(ss, func(s Status) bool { return !s.Good() }), "green means that all is green")
		}
	})
}

// T12, T15: what a level of trust opens. A fork's code gets neither, also after an approval.
func TestT15TrustDecides(t *testing.T) {
	t.Parallel()
	cases := []struct {
		trust           Trust
		name            string
		valid           bool
		secrets, tokens bool
	}{
		{TrustFork, "fork", true, false, false},
		{TrustApproved, "approved", true, false, false},
		{TrustBranch, "branch", true, true, true},
		{TrustProtected, "protected", true, true, true},
		{TrustProtected + 1, "unknown", false, false, false},
		{-1, "unknown", false, false, false},
	}
	for _, c := range cases {
		require.Equal(t, c.name, c.trust.String())
		require.Equal(t, c.valid, c.trust.Valid(), c.name)
		require.Equal(t, c.secrets, c.trust.Secrets(), c.name)
		require.Equal(t, c.tokens, c.trust.Tokens(), c.name)
	}
	var none Trust
	require.Equal(t, TrustFork, none, "who forgets to decide trusts least")
}

func TestStopSentences(t *testing.T) {
	t.Parallel()
	cases := map[string]*Stop{
		"cancelled by did:plc:alice":                             {Kind: StopCancel, By: "did:plc:alice"},
		"cancelled by spindle":                                   {Kind: StopCancel},
		"interrupted: the spindle was stopped (not your code)":   {Kind: StopDrain, By: "spindle"},
		"the right to run was lost; another attempt may have it": {Kind: StopStale},
		"ended by spindle":                                       {Kind: "new"},
	}
	for want, s := range cases {
		require.Equal(t, want, s.Sentence())
		require.EqualError(t, error(s), "stopped: "+want)
	}
}
