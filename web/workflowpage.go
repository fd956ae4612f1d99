package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"spindle/logs"
	"spindle/pipeline"
)

// perPage is how many lines a page of a log has.
const perPage = 2000

// workflowAt is the page of one workflow and the log of one of its attempts.
type workflowAt struct {
	w     *Web
	id    pipeline.ID
	name  string
	twin  bool
	query url.Values
}

// oneWorkflow is what the page is made of.
type oneWorkflow struct {
	workflowCard
	Repo, RepoURL         string
	Pipeline, PipelineURL string
	Text                  string
	Hold                  *hold
	Diagnostics           string
	Labels                []string
	Attempts              []attemptLink
	Old                   bool // an attempt that is not the last
	Lines                 []line
	First, Last, Total    int64
	Prev, Next, Raw       string
	HasLog                bool
	// Empty says why there is no log.
	Empty string
	Live  bool
}

type attemptLink struct {
	Number int
	URL    string
	On     bool
}

// tail is where a live log goes on: the line after the last one shown, counted from 0.
type tail struct {
	ref  logs.Ref
	line int64
}

func (a workflowAt) concerns(c pipeline.Change) bool {
	return c.Pipeline == a.id && (c.Workflow == "" || c.Workflow == a.name)
}

// locate finds the workflow and the attempt asked for.
func (a workflowAt) locate(ctx context.Context) (p pipeline.Pipeline, f pipeline.Workflow, ref logs.Ref, err error) {
	p, ok, err := a.w.c.Pipelines.Pipeline(ctx, a.id)
	if err != nil {
		return p, f, ref, fmt.Errorf("read pipeline %s: %w", a.id, err)
	}
	if !ok {
		return p, f, ref, errNotFound
	}
	for _, f := range p.Workflows {
		if f.Name == a.name {
			attempt := f.Attempt
			if n, err := strconv.Atoi(a.query.Get("attempt")); err == nil {
				if n < 1 || n > f.Attempt {
					return p, f, ref, errNotFound
				}
				attempt = n
			}
			return p, f, refOf(a.id, f, attempt), nil
		}
	}
	return p, f, ref, errNotFound
}

func (a workflowAt) load(ctx context.Context, full bool) (view, error) {
	p, f, ref, err := a.locate(ctx)
	if err != nil {
		return view{}, err
	}
	d := oneWorkflow{
		workflowCard: a.w.card(a.id, f), Repo: a.w.repoName(p.Owner, p.RepoName, p.Repo), RepoURL: repoURL(p.Repo),
		Pipeline: title(p), PipelineURL: pipelineURL(p.ID), Text: firstLine(f.Reason), Labels: f.Labels,
		Old: ref.Attempt != f.Attempt, HasLog: a.w.c.Logs.Exists(ref), Empty: quiet(f),
	}
	d.Live = !f.Status.Terminal() && !d.Old
	switch f.Status {
	case pipeline.Invalid:
		d.Diagnostics = f.Reason
	case pipeline.Held:
		d.Hold = a.w.held(p, f)
	}
	for n := 1; n <= f.Attempt && f.Attempt > 1 && n <= 20; n++ {
		d.Attempts = append(d.Attempts, attemptLink{Number: n, URL: fmt.Sprintf("%s?attempt=%d", d.URL, n), On: n == ref.Attempt})
	}
	m := d.Mark
	v := view{
		template: "workflow", title: f.Name + " · " + d.Repo, mark: &m, live: d.Live,
		sections: []string{"loghead", "steps"}, twin: struct{}{},
	}
	if full && d.HasLog {
		err := a.lines(ctx, &d, &v, ref, f)
		if err != nil && !errors.Is(err, logs.ErrNoLog) { // removed since: a page without a log
			return view{}, err
		}
	}
	if v.live && v.tail == nil {
		v.tail = &tail{ref: ref, line: d.Last}
	}
	if full && d.HasLog && v.live && d.Last < d.Total && d.Next != "" {
		v.tail = nil // an earlier page of a long log: new lines belong elsewhere
	}
	if a.twin && full {
		if v.twin, err = a.twinOf(ctx, f, ref, d); err != nil {
			return view{}, err
		}
	}
	v.data = d
	return v, nil
}

// lines reads the page of the log that was asked for.
func (a workflowAt) lines(ctx context.Context, d *oneWorkflow, v *view, ref logs.Ref, f pipeline.Workflow) error {
	from, err := a.start(ctx, ref, f)
	if err != nil {
		return err
	}
	if d.Lines, d.Total, err = a.w.read(ctx, ref, from, perPage); err != nil {
		return err
	}
	d.First, d.Last = from+1, from+int64(len(d.Lines))
	d.Total = max(d.Total, d.Last)
	address := func(line int64, extra string) string {
		q := url.Values{}
		if ref.Attempt != f.Attempt {
			q.Set("attempt", strconv.Itoa(ref.Attempt))
		}
		if line > 0 {
			q.Set("from", strconv.FormatInt(line, 10))
		}
		if extra != "" {
			q.Set(extra, "1")
		}
		if len(q) == 0 {
			return d.URL
		}
		return d.URL + "?" + q.Encode()
	}
	d.Raw = address(0, "raw")
	if from > 0 {
		d.Prev = address(max(1, from+1-perPage), "")
	}
	// A live log that is shown to its end has no next page: it grows.
	if d.Last < d.Total && (len(d.Lines) == perPage || !d.Live) {
		d.Next = address(d.Last+1, "")
	}
	for i := range d.Steps {
		d.Steps[i].URL = fmt.Sprintf("%s?step=%d#step-%d", d.URL, d.Steps[i].Index, d.Steps[i].Index)
	}
	v.tail = &tail{ref: ref, line: d.Last}
	return nil
}

// start is the line that the page begins with, counted from 0. What is asked for wins; then a live log shows
// its end, a red one where it failed, and any other its beginning.
func (a workflowAt) start(ctx context.Context, ref logs.Ref, f pipeline.Workflow) (int64, error) {
	number := func(key string) (int64, bool) {
		n, err := strconv.ParseInt(a.query.Get(key), 10, 64)
		return n, err == nil && n >= 0 && n < 1<<40
	}
	whole := func(line int64) int64 { return line / perPage * perPage }
	if n, ok := number("from"); ok {
		return max(0, n-1), nil
	}
	if n, ok := number("line"); ok {
		return whole(max(0, n-1)), nil
	}
	if n, ok := number("step"); ok {
		steps, err := a.w.c.Logs.Steps(ctx, ref)
		if err != nil {
			return 0, fmt.Errorf("read where the steps of a log begin: %w", err)
		}
		return whole(steps[int(n)]), nil
	}
	var at int64
	var err error
	switch step, red := failing(f); {
	case !f.Status.Terminal():
		at, err = a.w.lastLine(ctx, ref, 1<<30)
	case red:
		at, err = a.w.lastLine(ctx, ref, step.Index)
	}
	return whole(at), err
}

// twinOf is the page for programs: the workflow, and the lines of the page as they are in the log.
func (a workflowAt) twinOf(ctx context.Context, f pipeline.Workflow, ref logs.Ref, d oneWorkflow) (any, error) {
	out := struct {
		Workflow pipeline.Workflow `json:"workflow"`
		Attempt  int               `json:"attempt"`
		From     int64             `json:"from"`
		Total    int64             `json:"total"`
		Lines    []logs.Line       `json:"lines"`
	}{Workflow: f, Attempt: ref.Attempt, From: d.First, Total: d.Total, Lines: []logs.Line{}}
	if len(d.Lines) == 0 {
		return out, nil
	}
	lines, _, err := a.w.c.Logs.Page(ctx, ref, d.First-1, len(d.Lines))
	if err != nil {
		return nil, fmt.Errorf("read a page of the log: %w", err)
	}
	out.Lines = lines
	return out, nil
}

// quiet says why a workflow has no log.
func quiet(f pipeline.Workflow) string {
	switch {
	case f.Status == pipeline.Held:
		return "Nothing has run yet: a person must approve it first."
	case f.Status == pipeline.Waiting:
		return "Nothing has run yet: the workflow waits for its turn. The log appears here by itself."
	case f.Status.Active():
		return "The sandbox is starting. The log appears here by itself."
	case f.Status == pipeline.Invalid:
		return "Nothing ran: the workflow file cannot be used as it is written."
	case f.Attempt == 0:
		return "Nothing ran: the workflow ended as “" + f.Status.Label() + "” before it started."
	}
	return "The log is not here any more."
}
