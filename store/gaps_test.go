package store

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGapsStandUntilTheyAreClosed opens a gap with the cursor that passes over it, again while it stands, and closes it.
func TestGapsStandUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	s := newBench(t).Store
	at := Cursor{Source: "jetstream", Host: "js.test", Protocol: "v1", Value: 900}
	g := Gap{Source: "jetstream", Host: "js.test", Protocol: "v1", Reason: "too old", From: 100, To: 900}
	_, err := s.Accept(t.Context(), Effects{Gap: &g, Cursor: &at})
	require.NoError(t, err)
	first, err := s.OpenGaps(t.Context())
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.EqualValues(t, 1, first[0].Generation)
	require.False(t, first[0].OpenedAt.IsZero())

	again := Gap{Source: "jetstream", Host: "js.test", Protocol: "v1", Reason: "too old", From: 950, To: 990}
	_, err = s.Accept(t.Context(), Effects{Gap: &again})
	require.NoError(t, err)
	closed, err := s.CloseGap(t.Context(), first[0])
	require.NoError(t, err)
	require.False(t, closed, "what came in the meantime is not made up for")
	second, err := s.OpenGaps(t.Context())
	require.NoError(t, err)
	require.Len(t, second, 1)
	require.EqualValues(t, 100, second[0].From)
	require.EqualValues(t, 990, second[0].To)
	closed, err = s.CloseGap(t.Context(), second[0])
	require.NoError(t, err)
	require.True(t, closed)
	left, err := s.OpenGaps(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestB013ACursorMovesBackOnlyWhenItIsReset keeps it from moving back otherwise.
func TestB013ACursorMovesBackOnlyWhenItIsReset(t *testing.T) {
	t.Parallel()
	s := newBench(t).Store
	at := func(v int64, reset bool) Cursor {
		return Cursor{Source: "jetstream", Host: "js.test", Protocol: "v2", Value: v, Reset: reset}
	}
	value := func() (int64, bool) {
		c, ok, err := s.Cursor(t.Context(), "jetstream", "js.test", "v2")
		require.NoError(t, err)
		require.Equal(t, ok, !c.UpdatedAt.IsZero())
		return c.Value, ok
	}
	require.NoError(t, s.SaveCursor(t.Context(), at(497_201, false)))
	require.NoError(t, s.SaveCursor(t.Context(), at(4, false)))
	v, _ := value()
	require.EqualValues(t, 497_201, v)
	require.NoError(t, s.SaveCursor(t.Context(), at(4, true)))
	v, _ = value()
	require.EqualValues(t, 4, v)
	require.NoError(t, s.SaveCursor(t.Context(), at(0, true)))
	_, ok := value()
	require.False(t, ok)
}

// TestManyHintsAreAsOne writes more hints than one statement takes, some twice.
func TestManyHintsAreAsOne(t *testing.T) {
	t.Parallel()
	s := newBench(t).Store
	var hs []Recheck
	for i := range 3*hintRows + 5 {
		hs = append(hs, Recheck{DID: "did:web:a.test", Collection: "c", Rkey: strconv.Itoa(i % (2 * hintRows)), Reason: "r"})
	}
	_, err := s.Accept(t.Context(), Effects{Rechecks: hs})
	require.NoError(t, err)
	due, err := s.DueRechecks(t.Context(), 10*hintRows)
	require.NoError(t, err)
	require.Len(t, due, 2*hintRows)
	twice := 0
	for _, h := range due {
		if h.Generation == 2 {
			twice++
		}
		require.Equal(t, "r", h.Reason)
	}
	require.Equal(t, hintRows+5, twice, "a hint that comes again is a new one")
	hs[70].Rkey = strings.Repeat("x", maxKey)
	_, err = s.Accept(t.Context(), Effects{Rechecks: hs})
	require.ErrorIs(t, err, ErrTooLarge)
}
