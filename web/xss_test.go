package web

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"spindle/pipeline"
	"spindle/store"
)

// complaints collects what the browser's console says from now on.
func complaints(ctx context.Context, t *testing.T) func() []string {
	t.Helper()
	var mu sync.Mutex
	var out []string
	add := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, s)
	}
	err := chromedp.Listen(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			add(ev.Entry.Text + " " + ev.Entry.URL)
		case *runtime.EventExceptionThrown:
			add("exception: " + ev.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			add(fmt.Sprint("console.", ev.Type, " ", len(ev.Args)))
		case *page.EventJavascriptDialogOpening:
			add("dialog: " + ev.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), out...)
	}
}

// corpus are texts that run where they are not escaped for their place.
var corpus = []string{
	`<script>window.owned=1</script>`,
	`</title></textarea></style><script>window.owned=1</script>`,
	`"><img src=x onerror=window.owned=1>`,
	`'><svg/onload=window.owned=1>`,
	`" autofocus onfocus=window.owned=1 x="`,
	`javascript:window.owned=1`,
	`data:text/html,<script>parent.owned=1</script>`,
	`{{.}}${window.owned=1}`,
	`<iframe srcdoc="<script>top.owned=1</script>">`,
	`<math><mtext></table><mglyph><style><!--</style><img src=x onerror=window.owned=1>`,
	"</script><script>window.owned=1</script>",
	"<a href=\"java\tscript:window.owned=1\">x</a>",
	"\x1b]8;;javascript:window.owned=1\x07link\x1b]8;;\x07",
	"\x1b[31m<b onmouseover=window.owned=1>\x1b[0m",
	"\x1bP<script>window.owned=1</script>\x1b\\",
	"\u202e<script>window.owned=1</script>",
	"\xff\xfe<script>window.owned=1</script>",
	`&lt;script&gt;window.owned=1&lt;/script&gt;`,
	`--><script>window.owned=1</script><!--`,
	`]]><script>window.owned=1</script>`,
}

// hostile is a pipeline whose every text is s.
func hostile(w *world, n int, s string, status pipeline.Status) pipeline.Pipeline {
	p := w.build(n, s, status, pipeline.Held, pipeline.Invalid)
	p.Repo, p.RepoName, p.Knot, p.DefaultBranch, p.Note, p.Owner = did("hello"), s, s, s, s, s
	p.ApprovedBy = s
	p.Trigger.Actor, p.Trigger.Ref, p.Trigger.Commit, p.Trigger.RetryOf = s, "refs/heads/"+s, s, pipeline.ID(s)
	p.Trigger.Kind = pipeline.PullRequest
	p.Trigger.Pull = &pipeline.Pull{SourceRepo: s, SourceBranch: s, TargetBranch: s, Ticket: s}
	p.Trigger.Inputs = []pipeline.Input{{Key: s, Value: s}}
	for i := range p.Workflows {
		f := &p.Workflows[i]
		f.Name, f.File, f.Reason, f.Engine, f.Labels = fmt.Sprint(i, s), s, s, s, []string{s}
		for j := range f.Steps {
			f.Steps[j].Name, f.Steps[j].Command, f.Steps[j].Reason = s, s, s
		}
	}
	return p
}

// broken is a script that says what a payload became, or nothing.
const broken = `typeof window.owned !== 'undefined' ? 'a payload ran' :
	[...document.querySelectorAll('main script, main img:not([src^="/r/"]), iframe, math, [onerror], [onload], [onfocus], ' +
		'[onmouseover], a[href^="javascript" i], a[href^="data" i]')].map(e => 'markup: ' + e.outerHTML)[0] ?? ''`

// TestT44NothingShownEverRuns puts every payload into every text of every page, as served and as streamed, and
// looks in a real browser whether any of them ran.
func TestT44NothingShownEverRuns(t *testing.T) {
	ctx := browser(t)
	w := newWorld(t)
	for i, s := range corpus {
		w.repos = append(w.repos, store.RepoBinding{Repo: s, Owner: s, Name: s, Knot: s, DefaultBranch: s})
		p := hostile(w, i, s, pipeline.Failed)
		w.put(p)
		if err := w.write(t, p.Workflows[0], corpus...).Close(); err != nil {
			t.Fatal(err)
		}
	}
	live := hostile(w, 50, "quiet", pipeline.Running)
	w.put(live)
	out := w.write(t, live.Workflows[0])
	defer out.Close()
	_, s := w.serve(t)
	watch := complaints(ctx, t)
	open := func(path string, more ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		tasks := append([]chromedp.Action[chromedp.Void]{chromedp.Navigate(s.URL + path), chromedp.WaitReady("#main")}, more...)
		if err := chromedp.Do(ctx, tasks...); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		bad, err := chromedp.Run(ctx, chromedp.Evaluate[string](broken))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if bad != "" {
			t.Errorf("%s: %s", path, bad)
		}
	}
	open("/")
	open("/r/" + did("hello"))
	for i := range corpus {
		p := w.list[len(corpus)-i]
		open(pipelineURL(p.ID))
		for _, f := range p.Workflows {
			open(workflowURL(p.ID, f.Name))
		}
	}
	// The same over the stream, into a page that is open.
	o := out.Stream(2, "stdout")
	if _, err := o.Write([]byte(strings.Join(corpus, "\n") + "\nthe last line\n")); err != nil {
		t.Fatal(err)
	}
	open(workflowURL(live.ID, live.Workflows[0].Name), chromedp.Func(func(context.Context, *chromedp.Target) error {
		if _, err := o.Write([]byte(strings.Join(corpus, "\n") + "\nthe very last line\n")); err != nil {
			return err
		}
		next := hostile(w, 50, corpus[2], pipeline.Running)
		next.Workflows[0].Name = live.Workflows[0].Name
		w.put(next)
		return nil
	}), func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Poll[bool](`document.querySelector('#log').textContent.includes('the very last line') &&
			document.querySelector('#live-loghead').textContent.includes('onerror')`)(ctx, target)
		return chromedp.Void{}, err
	})
	for _, c := range watch() {
		t.Errorf("the browser complained: %s", c)
	}
}
