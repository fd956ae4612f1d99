package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Status is what the server says of itself at /_status. It names no accounts: that somebody is a member here is not
// everybody's business.
type Status struct {
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
	// NotReady is why the server cannot do its work; empty while it can.
	NotReady string     `json:"notReady,omitempty"`
	Parts    []Part     `json:"parts"`
	Stream   Stream     `json:"stream"`
	Backfill Accounts   `json:"backfill"`
	Repos    RepoLooks  `json:"repositories"`
	Queue    QueueCount `json:"queue"`
}

// Part is what one part of the server last said.
type Part struct {
	Name   string    `json:"name"`
	OK     bool      `json:"ok"`
	Detail string    `json:"detail"`
	Since  time.Time `json:"since"`
}

// Stream is how the reading of record streams goes.
type Stream struct {
	LagMS int64 `json:"lagMs"`
	Seen  int64 `json:"seen"`
	Kept  int64 `json:"kept"`
	Gaps  int64 `json:"gaps"`
	Hints int   `json:"hints"`
}

// Accounts counts the readings of accounts' records by state.
type Accounts struct {
	Total    int `json:"total"`
	Done     int `json:"done"`
	Wanted   int `json:"wanted"`
	Fetching int `json:"fetching"`
	Applying int `json:"applying"`
	Waiting  int `json:"waiting"`
	Refused  int `json:"refused"`
}

// RepoLooks is how the last comparison of refs went. Unseen counts repositories that were not looked at yet.
type RepoLooks struct {
	Total  int        `json:"total"`
	Unseen int        `json:"unseen"`
	Looked int        `json:"looked"`
	Failed int        `json:"failed"`
	Late   int        `json:"late"`
	Began  *time.Time `json:"began,omitempty"`
	Ended  *time.Time `json:"ended,omitempty"`
}

// QueueCount counts what runs and waits.
type QueueCount struct {
	Running       int        `json:"running"`
	Waiting       int        `json:"waiting"`
	Held          int        `json:"held"`
	Events        int        `json:"events"`
	OldestWaiting *time.Time `json:"oldestWaiting,omitempty"`
}

// status gathers a Status.
func (d *Daemon) status(ctx context.Context) (Status, error) {
	s := Status{Hostname: d.o.Hostname, Version: d.o.Version, NotReady: d.ready(ctx), Parts: []Part{}}
	for _, c := range d.health.Components() {
		s.Parts = append(s.Parts, Part{Name: c.Name, OK: c.OK, Detail: c.Detail, Since: c.Since.UTC()})
	}
	p, err := d.backfill.Progress(ctx)
	if err != nil {
		return s, err
	}
	a := p.Accounts
	s.Backfill = Accounts{
		Total: a.Total(), Done: a.Done, Wanted: a.Wanted, Fetching: a.Fetching, Applying: a.Applying, Waiting: a.Waiting, Refused: a.Refused,
	}
	unseen, err := d.store.Unsighted(ctx)
	if err != nil {
		return s, err
	}
	r := p.Round
	s.Repos = RepoLooks{
		Total: r.Repos, Unseen: len(unseen), Looked: r.Looked, Failed: r.Failed, Late: r.Late, Began: moment(r.Began), Ended: moment(r.Ended),
	}
	st, err := d.store.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.Queue = QueueCount{Running: st.Running, Waiting: st.Waiting, Held: st.Held, Events: st.PendingEvents, OldestWaiting: moment(st.OldestWaiting)}
	in := d.ingest.Stats()
	s.Stream = Stream{LagMS: in.Lag.Milliseconds(), Seen: in.Seen, Kept: in.Kept, Gaps: in.Gaps, Hints: st.Rechecks}
	return s, nil
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// serveStatus answers with a Status. It is made at most once a second, whoever asks how often.
func (d *Daemon) serveStatus(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	body, err := d.lastStatus(r.Context())
	if err != nil {
		d.o.Log.Error("tell the status", "err", err)
		http.Error(w, "the status cannot be read now", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // a client that left is no matter
}

func (d *Daemon) lastStatus(ctx context.Context) ([]byte, error) {
	d.statusMu.Lock()
	defer d.statusMu.Unlock()
	now := d.o.Clock.Now()
	if d.statusBody != nil && now.Sub(d.statusAt) < time.Second && !now.Before(d.statusAt) {
		return d.statusBody, nil
	}
	s, err := d.status(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	d.statusBody, d.statusAt = append(b, '\n'), now
	return d.statusBody, nil
}
