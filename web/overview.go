package web

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"spindle/obs"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/store"
)

// listed is how many pipelines a list shows at a time.
const listed = 50

// overviewAt is the overview of everything, or of one repository.
type overviewAt struct {
	w     *Web
	repo  string
	query url.Values
}

// overview is what the page is made of.
type overview struct {
	Host    string
	Repo    *repoHead
	Needs   []row
	Figures []figure
	Strip   *strip
	Rows    []row
	Filters []filter
	Older   string
	Newest  string // set on older pages
	Total   int
	Repos   []repoHead
	Health  []obs.Component
	// Filtered is whether a filter is on, so that an empty list means something else.
	Filtered bool
}

type repoHead struct {
	Name, DID, URL, Knot, Branch string
	Owner                        person
	Badge                        string
	Gone                         bool
	Why, Paused                  string
	Mark                         *mark
}

type figure struct {
	Label, Value, Note, Class string
}

type filter struct {
	Label, URL string
	On         bool
}

// filters are the choices above a list, and the statuses behind each.
var filters = []struct {
	word, label string
	statuses    []pipeline.Status
}{
	{"", "all", nil},
	{"live", "live", []pipeline.Status{pipeline.Running, pipeline.Preparing, pipeline.Waiting}},
	{"held", "needs approval", []pipeline.Status{pipeline.Held}},
	{"red", "failed", []pipeline.Status{pipeline.Failed, pipeline.Error, pipeline.Timeout, pipeline.Invalid, pipeline.Refused}},
	{"green", "passed", []pipeline.Status{pipeline.Passed}},
}

func (o overviewAt) concerns(c pipeline.Change) bool { return o.repo == "" || c.Repo == o.repo }

func (o overviewAt) load(ctx context.Context, _ bool) (view, error) {
	now := o.w.c.Clock.Now()
	bindings, err := o.w.c.Repos.Repos(ctx)
	if err != nil {
		return view{}, fmt.Errorf("list the repositories: %w", err)
	}
	q := store.Query{Repo: o.repo, Limit: listed, Before: pipeline.ID(o.query.Get("before"))}
	chosen := o.query.Get("status")
	for _, f := range filters {
		if f.word == chosen {
			q.Statuses = f.statuses
		}
	}
	ps, total, err := o.w.c.Pipelines.Pipelines(ctx, q)
	if err != nil {
		return view{}, fmt.Errorf("list the pipelines: %w", err)
	}
	d := overview{Host: o.w.c.Hostname, Total: total, Strip: stripOf(ps, now), Filtered: q.Statuses != nil || q.Before != ""}
	title := "Overview"
	for _, p := range ps {
		d.Rows = append(d.Rows, o.w.row(p, now))
	}
	if o.repo != "" {
		if d.Repo = o.head(bindings, ps); d.Repo == nil {
			return view{}, errNotFound
		}
		title = d.Repo.Name
	} else {
		d.Repos = o.repos(bindings)
	}
	if err := o.needs(ctx, &d, now); err != nil {
		return view{}, err
	}
	if o.repo == "" {
		st, err := o.w.c.Pipelines.Stats(ctx)
		if err != nil {
			return view{}, fmt.Errorf("read the figures: %w", err)
		}
		d.Figures = figures(st, now)
	}
	if o.w.c.Health != nil {
		d.Health = o.w.c.Health.Components()
	}
	o.links(&d, chosen, ps)
	twin := struct {
		Pipelines []pipeline.Pipeline `json:"pipelines"`
		Total     int                 `json:"total"`
		Next      string              `json:"next,omitempty"`
	}{slices.Clip(ps), total, ""}
	if d.Older != "" {
		twin.Next = string(ps[len(ps)-1].ID)
	}
	if twin.Pipelines == nil {
		twin.Pipelines = []pipeline.Pipeline{}
	}
	return view{
		template: "overview", title: title, data: d, twin: twin, live: q.Before == "",
		sections: []string{"needs", "figures", "list", "health"},
	}, nil
}

// needs lists what waits for a person, whatever filter is on.
func (o overviewAt) needs(ctx context.Context, d *overview, now time.Time) error {
	held, _, err := o.w.c.Pipelines.Pipelines(ctx, store.Query{Repo: o.repo, Statuses: []pipeline.Status{pipeline.Held}, Limit: 5})
	if err != nil {
		return fmt.Errorf("list what waits for an approval: %w", err)
	}
	for _, p := range held {
		d.Needs = append(d.Needs, o.w.row(p, now))
	}
	return nil
}

// head is the repository as it is bound, or as its last pipeline knew it; nil when it is unknown.
func (o overviewAt) head(bindings []store.RepoBinding, ps []pipeline.Pipeline) *repoHead {
	for _, b := range bindings {
		if b.Repo == o.repo {
			return o.w.repoHead(b)
		}
	}
	if len(ps) == 0 {
		return nil
	}
	p := ps[0]
	return o.w.repoHead(store.RepoBinding{Repo: p.Repo, Owner: p.Owner, Name: p.RepoName, Knot: p.Knot, DefaultBranch: p.DefaultBranch, Gone: true})
}

func (w *Web) repoHead(b store.RepoBinding) *repoHead {
	return &repoHead{
		Name: w.repoName(b.Owner, b.Name, b.Repo), DID: b.Repo, URL: repoURL(b.Repo), Knot: b.Knot, Branch: b.DefaultBranch,
		Owner: w.person(b.Owner), Badge: repoURL(b.Repo) + "/badge.svg", Gone: b.Gone, Why: gone(b),
		Paused: paused(b.Paused),
	}
}

// gone says why a repository is no longer served.
func gone(b store.RepoBinding) string {
	if !b.Gone || b.GoneReason == "" {
		return ""
	}
	return strings.ToUpper(b.GoneReason[:1]) + b.GoneReason[1:] + "."
}

// paused says why nothing starts in a repository; empty when it is not paused.
func paused(why rbac.Role) string {
	switch why {
	case "":
		return ""
	case rbac.Takendown:
		return "Paused: its owner's account was taken down by its host. It runs again when the account is back."
	case rbac.Suspended:
		return "Paused: its owner's account is suspended by its host. It runs again when the account is back."
	case rbac.Deactivated:
		return "Paused: its owner's account is deactivated. It runs again when the account is active."
	case rbac.Deleted:
		return "Paused: its owner's account was deleted."
	}
	return "Paused: its owner's account is not active at its host. It runs again when the account is back."
}

func (o overviewAt) repos(bindings []store.RepoBinding) []repoHead {
	var out []repoHead
	for _, b := range bindings {
		if !b.Gone {
			out = append(out, *o.w.repoHead(b))
		}
	}
	slices.SortFunc(out, func(a, b repoHead) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return out
}

func figures(s store.Stats, now time.Time) []figure {
	waiting := figure{Label: "Waiting", Value: fmt.Sprint(s.Waiting), Note: "nothing is queued"}
	if s.Waiting > 0 && !s.OldestWaiting.IsZero() {
		waiting.Note = "the oldest for " + lasted(now.Sub(s.OldestWaiting))
	}
	passed := figure{Label: "Passed in 24 h", Value: "–", Note: "nothing has ended"}
	if s.Finished24h > 0 {
		passed.Value = fmt.Sprintf("%d %%", s.Passed24h*100/s.Finished24h)
		passed.Note = fmt.Sprintf("%d of %d", s.Passed24h, s.Finished24h)
	}
	running := figure{Label: "Running", Value: fmt.Sprint(s.Running), Note: "idle"}
	if s.Running > 0 {
		running.Note, running.Class = "now", "run"
	}
	held := figure{Label: "Needs approval", Value: fmt.Sprint(s.Held), Note: "nobody is asked"}
	if s.Held > 0 {
		held.Note, held.Class = "a person decides", "hold"
	}
	return []figure{running, waiting, held, passed}
}

// links are the filters and the way to older pipelines.
func (o overviewAt) links(d *overview, chosen string, ps []pipeline.Pipeline) {
	base := "/"
	if o.repo != "" {
		base = repoURL(o.repo)
	}
	address := func(status string, before pipeline.ID) string {
		q := url.Values{}
		if status != "" {
			q.Set("status", status)
		}
		if before != "" {
			q.Set("before", string(before))
		}
		if len(q) == 0 {
			return base
		}
		return base + "?" + q.Encode()
	}
	known := false
	for _, f := range filters {
		known = known || f.word == chosen
		d.Filters = append(d.Filters, filter{Label: f.label, URL: address(f.word, ""), On: f.word == chosen})
	}
	if !known {
		chosen, d.Filters[0].On = "", true
	}
	if len(ps) == listed {
		d.Older = address(chosen, ps[len(ps)-1].ID)
	}
	if o.query.Get("before") != "" {
		d.Newest = address(chosen, "")
	}
}
