package backfill

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spindle/store"
)

// Metrics are the figures of this package. Make them with NewMetrics.
type Metrics struct {
	dids    *prometheus.GaugeVec
	ended   *prometheus.CounterVec
	records prometheus.Counter
	looks   *prometheus.CounterVec
	late    prometheus.Counter
}

// NewMetrics returns the figures, registered with r unless it is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		dids: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spindle_backfill_accounts", Help: "Followed accounts and repositories, by the state of the reading of their records.",
		}, []string{"state"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_backfill_readings_total", Help: "Readings of an account's records that ended, by how.",
		}, []string{"outcome"}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spindle_backfill_records_total", Help: "Records that readings brought.",
		}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_backfill_looks_total", Help: "Looks at the refs of a repository at its knot, by how they ended.",
		}, []string{"outcome"}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spindle_backfill_late_pushes_total", Help: "Pushes that a look found and nobody had told of.",
		}),
	}
	if r != nil {
		r.MustRegister(m.dids, m.ended, m.records, m.looks, m.late)
	}
	return m
}

const (
	progressEvery = time.Second
	tellEvery     = 10 * time.Second
)

// Progress is how far everything is.
type Progress struct {
	Accounts store.BackfillCount
	Round    Round
	// Trouble are some of the readings that wait or are refused.
	Trouble []store.Backfill
}

// Progress tells how far everything is.
func (b *Backfill) Progress(ctx context.Context) (Progress, error) {
	c, err := b.c.Store.CountBackfills(ctx)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Accounts: c, Round: b.currentRound()}
	if c.Waiting+c.Refused > 0 {
		p.Trouble, err = b.c.Store.Troubled(ctx, 10)
	}
	return p, err
}

// progress keeps health and metrics, and while there is something to read a line in the log: every 10 s or 10 %.
func (b *Backfill) progress(ctx context.Context) {
	began, told, at := b.c.Clock.Now(), b.c.Clock.Now(), -1
	var open int // what there was to read when this catch-up began
	for ctx.Err() == nil {
		c, err := b.c.Store.CountBackfills(ctx)
		if err == nil {
			b.show(c)
			now := b.c.Clock.Now()
			left := c.Open() - c.Waiting
			switch {
			case left == 0 && open > 0:
				b.c.Log.Info("accounts are read", "accounts", c.Done, "waiting", c.Waiting, "refused", c.Refused,
					"took", now.Sub(began).Round(time.Millisecond))
				open, at = 0, -1
			case left > open:
				if open == 0 {
					began, told = now, now
				}
				open = left
			}
			if open > 0 {
				done := open - left
				tenth := 10 * done / open
				if tenth > at && at >= 0 || now.Sub(told) >= tellEvery {
					b.c.Log.Info("accounts are being read", "done", done, "of", open, "left", remaining(done, open, now.Sub(began)),
						"waiting", c.Waiting, "refused", c.Refused)
					told = now
				}
				at = max(at, tenth)
			}
		}
		if b.c.Clock.Sleep(ctx, progressEvery) != nil {
			return
		}
	}
}

// remaining is about how long the rest takes if it goes on as it went.
func remaining(done, of int, took time.Duration) time.Duration {
	if done <= 0 {
		return 0
	}
	return (took * time.Duration(of-done) / time.Duration(done)).Round(time.Second)
}

// show sets health and gauges.
func (b *Backfill) show(c store.BackfillCount) {
	for state, n := range map[store.BackfillState]int{
		store.BackfillWanted: c.Wanted, store.BackfillFetching: c.Fetching, store.BackfillApplying: c.Applying,
		store.BackfillDone: c.Done, store.BackfillWaiting: c.Waiting, store.BackfillRefused: c.Refused,
	} {
		b.c.Metrics.dids.WithLabelValues(string(state)).Set(float64(n))
	}
	switch {
	case c.Waiting+c.Refused > 0:
		b.c.Health("backfill", false, fmt.Sprintf("%d of %d accounts are read; %d wait for their server and %d are refused",
			c.Done, c.Total(), c.Waiting, c.Refused))
	case c.Open() > 0:
		b.c.Health("backfill", true, fmt.Sprintf("%d of %d accounts are read", c.Done, c.Total()))
	default:
		b.c.Health("backfill", true, fmt.Sprintf("all %d accounts are read", c.Done))
	}
}
