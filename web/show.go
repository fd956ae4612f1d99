package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"spindle/pipeline"
)

// mark is a status as pages show it: always a symbol, a word and a colour.
type mark struct {
	Symbol, Word, Class string
	Moving              bool
}

func markOf(s pipeline.Status) mark {
	m := mark{Symbol: s.Symbol() + "\ufe0e", Word: s.Label(), Class: colour(s), Moving: s.Active()}
	return m
}

// colour is the token of the page's palette that a status has.
func colour(s pipeline.Status) string {
	switch s {
	case pipeline.Passed:
		return "pass"
	case pipeline.Failed, pipeline.Timeout, pipeline.Invalid:
		return "fail"
	case pipeline.Error:
		return "infra"
	case pipeline.Held:
		return "hold"
	case pipeline.Preparing, pipeline.Running:
		return "run"
	case pipeline.Refused, pipeline.Expired:
		return "warn"
	}
	return "muted"
}

// moment is a time as a page shows it: how long ago, with the full time behind it.
type moment struct {
	ISO, Full, Ago string
}

func momentOf(t, now time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{ISO: t.UTC().Format(time.RFC3339), Full: t.UTC().Format("2006-01-02 15:04:05 UTC"), Ago: ago(now.Sub(t), t)}
}

func ago(d time.Duration, t time.Time) string {
	switch {
	case d < 5*time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	case d < 30*24*time.Hour:
		return fmt.Sprintf("%d d ago", int(d.Hours()/24))
	}
	return t.UTC().Format("2 Jan 2006")
}

// took is how long something lasted, or for what still goes on since when.
type took struct {
	Text string
	// Since is set while it goes on, so that the page can count.
	Since string
}

// tookOf tells nothing of what is over without having begun or ended: a skipped step lasted no time.
func tookOf(s pipeline.Status, from, to, now time.Time) took {
	if from.IsZero() || (to.IsZero() && s.Terminal()) {
		return took{}
	}
	if to.IsZero() {
		return took{Text: lasted(now.Sub(from)), Since: from.UTC().Format(time.RFC3339Nano)}
	}
	return took{Text: lasted(to.Sub(from))}
}

func lasted(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
}

// person is an account: how it reads, and its DID.
type person struct{ Name, DID string }

func (w *Web) person(did string) person {
	if did == "" {
		return person{}
	}
	return person{Name: w.names.show(did), DID: did}
}

// reason is what started a pipeline, in a few words.
type reason struct {
	Kind   string // push, tag, pull request, manual, schedule
	Ref    string // a branch or tag
	From   string // for a pull request: where the code comes from
	Commit string // shortened
	Full   string // the whole commit
	Retry  pipeline.ID
}

func reasonOf(t pipeline.Trigger) reason {
	r := reason{Kind: string(t.Kind), Ref: t.RefName(), Full: t.Commit, Commit: short(t.Commit), Retry: t.RetryOf}
	switch {
	case t.Kind == pipeline.PullRequest && t.Pull != nil:
		r.Kind, r.Ref, r.From = "pull request", t.Pull.TargetBranch, t.Pull.SourceBranch
		if r.From == "" {
			r.From = "a patch"
		} else if t.Pull.SourceRepo != "" && t.Pull.SourceRepo != t.Repo {
			r.From = "a fork’s " + r.From
		}
	case t.RefType() == "tag":
		r.Kind = "tag"
	}
	return r
}

func short(commit string) string {
	if len(commit) > 8 {
		return commit[:8]
	}
	return commit
}

// repoName is how a repository reads: owner/name.
func (w *Web) repoName(owner, name, did string) string {
	if name == "" {
		return shortDID(did)
	}
	if h := w.names.handle(owner); h != "" {
		return h + "/" + name
	}
	return name
}

func repoURL(did string) string         { return "/r/" + url.PathEscape(did) }
func pipelineURL(id pipeline.ID) string { return "/p/" + url.PathEscape(string(id)) }

// workflowURL hides an ending of the name that would ask for the page's twin.
func workflowURL(id pipeline.ID, name string) string {
	path := pipelineURL(id) + "/" + url.PathEscape(name)
	if rest, ok := strings.CutSuffix(path, ".json"); ok {
		path = rest + "%2Ejson"
	}
	return path
}

// row is a pipeline in a list.
type row struct {
	ID        pipeline.ID
	URL       string
	Mark      mark
	Repo      string
	RepoURL   string
	Title     string
	Reason    reason
	Actor     person
	When      moment
	Took      took
	Workflows []chip
	// Detail says what went wrong, or what it waits for.
	Detail string
}

// chip is a workflow in a row.
type chip struct {
	Name, URL string
	Mark      mark
}

func (w *Web) row(p pipeline.Pipeline, now time.Time) row {
	r := row{
		ID: p.ID, URL: pipelineURL(p.ID), Mark: markOf(p.Status), Repo: w.repoName(p.Owner, p.RepoName, p.Repo),
		RepoURL: repoURL(p.Repo), Title: title(p), Reason: reasonOf(p.Trigger), Actor: w.person(p.Trigger.Actor),
		When: momentOf(p.CreatedAt, now), Detail: detail(p),
	}
	if from := began(p); !from.IsZero() {
		r.Took = tookOf(p.Status, from, p.FinishedAt, now)
	}
	for _, f := range p.Workflows {
		r.Workflows = append(r.Workflows, chip{Name: f.Name, URL: workflowURL(p.ID, f.Name), Mark: markOf(f.Status)})
	}
	return r
}

func title(p pipeline.Pipeline) string {
	if t := strings.TrimSpace(p.Title); t != "" {
		return t
	}
	if p.Trigger.Kind == pipeline.Manual {
		return "run by hand"
	}
	return "commit " + short(p.Trigger.Commit)
}

// began is when the first workflow started, or zero.
func began(p pipeline.Pipeline) time.Time {
	var first time.Time
	for _, f := range p.Workflows {
		if !f.StartedAt.IsZero() && (first.IsZero() || f.StartedAt.Before(first)) {
			first = f.StartedAt
		}
	}
	return first
}

// detail is one line on what somebody should look at, or "".
func detail(p pipeline.Pipeline) string {
	for _, f := range p.Workflows {
		if f.Status.Terminal() && !f.Status.Good() {
			line, _, _ := strings.Cut(f.Reason, "\n")
			switch {
			case line != "":
				return f.Name + ": " + line
			case f.ExitCode != 0:
				return fmt.Sprintf("%s: exit code %d", f.Name, f.ExitCode)
			}
		}
	}
	for _, f := range p.Workflows {
		if f.Status == pipeline.Held || f.Status == pipeline.Waiting {
			if line, _, _ := strings.Cut(f.Reason, "\n"); line != "" {
				return f.Name + ": " + line
			}
		}
	}
	return ""
}
