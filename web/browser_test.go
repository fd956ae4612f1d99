package web

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"spindle/pipeline"
	"spindle/store"
)

// browser starts a real Chromium, or skips.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Chromium, which is slow: left out of -short")
	}
	bin := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			bin = p
			break
		}
	}
	if bin == "" {
		t.Skip("no chromium, chromium-browser or google-chrome on the PATH")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(bin), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
	)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", bin, err)
	}
	return ctx
}

// rich fills a world with one of everything.
func rich(t testing.TB) *world {
	w := newWorld(t)
	w.repos = []store.RepoBinding{
		{Repo: did("hello"), Owner: did("alice"), Name: "hello", Knot: "knot1.example.com", DefaultBranch: "main"},
		{Repo: did("site"), Owner: did("carol"), Name: "site", Knot: "knot2.example.com", DefaultBranch: "trunk"},
		{Repo: did("ml"), Owner: did("dan"), Name: "ml-training", Knot: "knot1.example.com", DefaultBranch: "main"},
	}
	ok, bad := pipeline.Passed, pipeline.Failed
	titles := []string{"add greet", "greet: fix plural", "docs: how to run it", "cache key change", "bump deps", "ci: split lint and test"}
	for i := range 14 {
		ss := []pipeline.Status{ok, ok, ok}
		switch i {
		case 3, 8:
			ss[0] = bad
		case 5:
			ss[1] = pipeline.Error
		case 9:
			ss = []pipeline.Status{pipeline.Superseded}
		}
		p := w.build(i, titles[i%len(titles)], ss...)
		if i%4 == 2 {
			p.Repo, p.Owner, p.RepoName, p.Trigger.Actor, p.Trigger.Ref = did("site"), did("carol"), "site", did("carol"), "refs/tags/v1.2.0"
		}
		w.put(p)
	}
	held := w.build(20, "Add a dark mode to the greeting, with tests for every terminal we could find", pipeline.Held, pipeline.Held)
	held.Trigger.Kind, held.Trigger.Actor, held.Trust = pipeline.PullRequest, did("bob"), pipeline.TrustFork
	held.Trigger.Pull = &pipeline.Pull{SourceRepo: did("fork"), SourceBranch: "dark", TargetBranch: "main", Head: held.Trigger.Commit}
	held.Note = "the code comes from outside of the repository: somebody who may push to it must approve this run; secrets and ID tokens are withheld, also after the approval"
	for i := range held.Workflows {
		held.Workflows[i].Reason = "waits for the approval of somebody who may push to the repository"
	}
	w.put(held)
	red := w.build(21, "greet: two cats, one dog", bad, ok, ok)
	w.put(red)
	out := w.write(t, red.Workflows[0], sample()...)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	inv := w.build(22, "ci: try a matrix", pipeline.Invalid, ok)
	inv.Workflows[0].Reason = "error[unknown-key]: unknown key \"comand\"\n  ┌─ .tangled/workflows/test.yml:9:5\n8 │   - name: unit\n9 │     comand: go test ./...\n  │     ^^^^^^ did you mean \"command\"?\n  = fix: write \"command\""
	w.put(inv)
	wait := w.build(23, "release: 2.0", pipeline.Waiting)
	wait.Workflows[0].Reason = "all seats are taken; this one is next"
	w.put(wait)
	run := w.build(24, "greet: faster start", pipeline.Running, ok, pipeline.Preparing)
	run.CreatedAt = w.clock.Now().Add(-21 * time.Second)
	w.put(run)
	live := w.write(t, run.Workflows[0], sample()[:14]...)
	t.Cleanup(func() { _ = live.Close() })
	return w
}

// sample is what a test run prints, with the escapes that test runs print.
func sample() []string {
	out := []string{
		"\x1b[1m=== RUN\x1b[0m   greet", "\x1b[32m--- PASS\x1b[0m: greet/one (0.00s)", "\x1b[32m--- PASS\x1b[0m: greet/none (0.00s)",
		"downloading 1 %\rdownloading 56 %\rdownloading 100 % \x1b[90m(4.1 MiB)\x1b[0m",
		"\x1b[33mwarning:\x1b[0m the flag \x1b[1m-x\x1b[22m is deprecated", "",
		"\x1b[38;5;208mpalette\x1b[0m \x1b[38;2;90;200;250mtrue colour\x1b[0m \x1b[44;97m badge \x1b[0m \x1b[7m inverse \x1b[0m \x1b[4munder\x1b[0m \x1b[3mitalic\x1b[0m",
		"\x1b]8;;https://example.com\x07a link that stays text\x1b]8;;\x07",
		strings.Repeat("a long line that has to wrap somewhere ", 8),
		"\tindented by a tab", "日本語 and العربية side by side",
	}
	for i := range 24 {
		out = append(out, fmt.Sprintf("ok   example.com/hello/internal/part%02d   0.%03ds", i, 17*i%999))
	}
	return append(out, "\x1b[31m--- FAIL\x1b[0m: greet/plural (0.01s)", "    greet_test.sh:14: want \"2 cats\", got \"2 cat\"", "\x1b[31mFAIL\x1b[0m",
		"FAIL example.com/hello 0.412s", "make: *** [Makefile:12: test] Error 1")
}

// look opens a page on a screen, tells whether it is wider than that, and takes a picture if asked.
func look(ctx context.Context, t *testing.T, url string, width, height int64, scheme string, picture bool) (wide bool, pic []byte) {
	t.Helper()
	err := chromedp.Do(ctx,
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			return err
		}),
		chromedp.EmulateViewport(width, height), chromedp.Navigate(url), chromedp.WaitReady("#main"),
	)
	if err == nil {
		wide, err = chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`))
	}
	if err == nil && picture {
		pic, err = chromedp.Run(ctx, chromedp.FullScreenshot(90))
	}
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return wide, pic
}

var screens = []struct {
	name          string
	width, height int64
}{{"desktop", 1280, 900}, {"mobile", 320, 700}}

// TestPagesInABrowser opens every page in both colour schemes and two widths: nothing may be wider than the
// screen, no script may fail, and nothing may be refused by the policy. SPINDLE_SHOTS names a folder for pictures.
func TestPagesInABrowser(t *testing.T) {
	ctx := browser(t)
	w := rich(t)
	_, s := w.serve(t)
	empty := newWorld(t)
	_, bare := empty.serve(t)
	pages := map[string]string{
		"overview": s.URL + "/", "repo": s.URL + "/r/" + did("hello"), "failed": s.URL + "/p/3lx2aaaaaaa21", "held": s.URL + "/p/3lx2aaaaaaa20",
		"invalid": s.URL + "/p/3lx2aaaaaaa22", "running": s.URL + "/p/3lx2aaaaaaa24", "log": s.URL + "/p/3lx2aaaaaaa21/test",
		"livelog": s.URL + "/p/3lx2aaaaaaa24/test", "empty": bare.URL + "/", "problem": s.URL + "/nowhere",
	}
	shots := os.Getenv("SPINDLE_SHOTS")
	watch := complaints(ctx, t)
	for name, url := range pages {
		for _, sc := range screens {
			for _, scheme := range []string{"light", "dark"} {
				wide, pic := look(ctx, t, url, sc.width, sc.height, scheme, shots != "")
				if wide {
					t.Errorf("%s is wider than a screen of %d pixels", name, sc.width)
				}
				if shots != "" {
					if err := os.WriteFile(filepath.Join(shots, name+"-"+sc.name+"-"+scheme+".jpg"), pic, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	for _, c := range watch() {
		if !strings.Contains(c, "404 (Not Found)") {
			t.Errorf("the browser complained: %s", c)
		}
	}
}
