package identity

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
)

// TestHostThatAsksForARestGetsIt answers with 429 and 503, and counts what comes all the same.
func TestHostThatAsksForARestGetsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		header string
		rest   time.Duration // 0: none
	}{
		{429, "7", 7 * time.Second},
		{429, "", firstRest},
		{429, "soon", firstRest},
		{429, "-3", firstRest},
		{429, "999999999", mostRest},
		{429, time.Date(2026, 9, 1, 12, 0, 30, 0, time.UTC).Format(http.TimeFormat), 30 * time.Second},
		{503, "11", 11 * time.Second},
		{503, "", 0},
		{500, "11", 0},
	} {
		w := newWorld(t)
		clk := clock.NewManual(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
		a := w.account(t, plcName(), false, map[string]map[string]any{"org.tangled.a/x": {"$type": "org.tangled.a"}})
		p := NewProver(ProverConfig{Directory: w.directory(), Client: w.client, Clock: clk})
		w.mu.Lock()
		w.other["pds.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				rw.Header().Set("Retry-After", c.header)
			}
			rw.WriteHeader(c.status)
		})
		w.mu.Unlock()
		ask := func() error {
			_, err := p.Record(t.Context(), a.did, "org.tangled.a", "x")
			return err
		}
		name := fmt.Sprintf("%d %q", c.status, c.header)
		require.ErrorIs(t, ask(), ErrUnreachable, name)
		path := "pds.test/xrpc/com.atproto.sync.getRecord"
		require.Equal(t, 1, w.requests(path))
		err := ask()
		var busy *HostBusyError
		require.Equal(t, c.rest > 0, errors.As(err, &busy), name)
		if c.rest == 0 {
			continue
		}
		require.Equal(t, c.rest, busy.Wait, name)
		require.True(t, Temporary(err))
		require.Equal(t, "Busy", Reason(err))
		require.Equal(t, 1, w.requests(path), "%s: nothing was sent", name)
		clk.Advance(c.rest)
		require.ErrorIs(t, ask(), ErrUnreachable, name)
		require.Equal(t, 2, w.requests(path), name)
	}
}

// TestVisitsAreCountedOnceAtEachHost lets a few in, however much each asks, and turns the others away at once.
func TestVisitsAreCountedOnceAtEachHost(t *testing.T) {
	t.Parallel()
	h := newHosts(clock.Real{}, 2)
	a, leaveA := Visit(t.Context())
	b, leaveB := Visit(t.Context())
	c, leaveC := Visit(t.Context())
	for range 5 {
		require.NoError(t, h.come(a, "https://slow.example"))
		require.NoError(t, h.come(b, "https://slow.example"))
	}
	var busy *HostBusyError
	last := time.Duration(0)
	for range 1000 {
		require.ErrorAs(t, h.come(c, "https://slow.example"), &busy)
		require.Positive(t, busy.Wait)
		last = max(last, busy.Wait)
	}
	require.LessOrEqual(t, last, mostQueued)
	require.Greater(t, last, 5*time.Second, "who comes late in a long queue comes later")
	require.NoError(t, h.come(c, "https://other.example"))
	require.NoError(t, h.come(t.Context(), "https://slow.example"), "who makes no visit is not counted")
	leaveA()
	leaveA()
	require.NoError(t, h.come(c, "https://slow.example"))
	leaveB()
	leaveC()
	for i := range 3 * maxHosts {
		v, leave := Visit(t.Context())
		require.NoError(t, h.come(v, fmt.Sprintf("https://h%d.example", i)))
		leave()
	}
	require.LessOrEqual(t, len(h.m), maxHosts)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				v, leave := Visit(t.Context())
				_ = h.come(v, "https://slow.example")
				leave()
			}
		})
	}
	wg.Wait()
	require.Zero(t, h.of("https://slow.example").visits)
}

// TestAccountStatus asks hosts that answer in every way.
func TestAccountStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		body string
		want string
		err  error
	}{
		"active":               {200, `{"did":%q,"active":true,"rev":"x"}`, "", nil},
		"active with a status": {200, `{"did":%q,"active":true,"status":"throttled"}`, "", nil},
		"takendown":            {200, `{"did":%q,"active":false,"status":"takendown"}`, StatusTakendown, nil},
		"suspended":            {200, `{"did":%q,"active":false,"status":"suspended"}`, StatusSuspended, nil},
		"deactivated":          {200, `{"did":%q,"active":false,"status":"deactivated"}`, StatusDeactivated, nil},
		"deleted":              {200, `{"did":%q,"active":false,"status":"deleted"}`, StatusDeleted, nil},
		"a word of tomorrow":   {200, `{"did":%q,"active":false,"status":"on holiday"}`, StatusUnavailable, nil},
		"no word":              {200, `{"did":%q,"active":false}`, StatusUnavailable, nil},
		"of somebody else":     {200, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","active":false,"x":%q}`, "", ErrUnreachable},
		"without active":       {200, `{"did":%q,"status":"takendown"}`, "", ErrUnreachable},
		"no JSON":              {200, `<html>%q`, "", ErrUnreachable},
		"too much":             {200, `{"did":%q,"active":true,"x":"` + string(make([]byte, 8<<10)) + `"}`, "", ErrProof},
		"not here":             {400, `{"error":"RepoNotFound","message":%q}`, StatusDeleted, nil},
		"says so as an error":  {400, `{"error":"RepoTakendown","message":%q}`, StatusTakendown, nil},
		"an older host":        {501, `{"error":"MethodNotImplemented","message":%q}`, "", nil},
		"knows no such call":   {404, `{"error":"XRPCNotSupported","message":%q}`, "", nil},
		"down":                 {502, `%q`, "", ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.account(t, plcName(), false, nil)
			w.mu.Lock()
			w.other["pds.test"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(c.code)
				_, _ = fmt.Fprintf(rw, c.body, a.did)
			})
			w.mu.Unlock()
			got, err := w.prover().Account(t.Context(), a.did)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Status)
			require.Equal(t, "wren.test", got.Handle)
		})
	}
}

// TestRefreshIsBounded asks for fresh documents of one DID without end.
func TestRefreshIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, other := w.account(t, plcName(), false, nil), w.account(t, plcName(), false, nil)
	d := w.directory(func(c *DirectoryConfig) { c.Clock = clock.NewManual(time.Now()) })
	for i := range 100 {
		_, err := d.Refresh(t.Context(), a.did)
		if i < 5 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrBusy)
		}
	}
	require.Equal(t, 5, w.requests("plc.test/"+a.did))
	_, err := d.Lookup(t.Context(), a.did)
	require.NoError(t, err, "what is known still is")
	_, err = d.Refresh(t.Context(), other.did)
	require.NoError(t, err)
}
