package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

func push(ref string) pipeline.Trigger { return pipeline.Trigger{Kind: pipeline.Push, Ref: ref} }

func pull(target, action string) pipeline.Trigger {
	return pipeline.Trigger{Kind: pipeline.PullRequest, Ref: "refs/heads/fork-branch", Pull: &pipeline.Pull{
		TargetBranch: target, SourceBranch: "fork-branch", Action: action,
	}}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	files := func(fs ...string) Changed { return Changed{Files: fs, Known: true} }
	for _, c := range []struct {
		when    string
		trigger pipeline.Trigger
		changed Changed
		why     string // empty: it matches
	}{
		{"", push("refs/heads/main"), Changed{}, ""},
		{"", push("refs/tags/v1"), Changed{}, ""},
		{"", pull("main", "closed"), Changed{}, ""},
		{"", pipeline.Trigger{Kind: pipeline.Schedule}, Changed{}, ""},
		{"[]", push("refs/heads/main"), Changed{}, ""},
		{"[{event: push, branch: main}]", push("refs/heads/main"), Changed{}, ""},
		{"[{event: push, branch: main}]", push("refs/heads/dev"), Changed{}, "wants branch main, got dev"},
		{"[{event: push, branch: main}]", push("refs/tags/main"), Changed{}, "wants branch main, got tag main"},
		{"[{event: push, branch: main}]", push("refs/notes/main"), Changed{}, "wants a branch or a tag, got refs/notes/main"},
		{"[{event: push, branch: main}]", push(""), Changed{}, "wants a branch or a tag, got "},
		{"[{event: push, branch: main}]", pull("main", "opened"), Changed{}, "wants event push, got pull_request"},
		{"[{event: push, branch: main}]", pipeline.Trigger{Kind: pipeline.Manual}, Changed{}, ""},
		{"[{event: push, branch: main}]", pipeline.Trigger{Kind: "odd"}, Changed{}, "wants event push, got odd"},
		{"[{event: [push, manual]}, {event: schedule}]", pull("x", ""), Changed{}, "wants event push, manual or schedule, got pull_request"},
		// Neither branch nor tag: a condition has to say what it wants of a push.
		{"[{event: push}]", push("refs/heads/main"), Changed{}, "wants branch none, got main"},
		{"[{event: push, branch: []}]", push("refs/heads/main"), Changed{}, "wants branch none, got main"},
		{"[{event: push, tag: []}]", push("refs/tags/v1"), Changed{}, "wants branch none, got tag v1"},
		{"[{event: []}]", push("refs/heads/main"), Changed{}, "wants event none, got push"},
		{"[{event: pull_request}]", pull("main", "opened"), Changed{}, "wants a pull request to branch none, got main"},
		{"[{event: push, tag: 'v*'}]", push("refs/tags/v1.2"), Changed{}, ""},
		{"[{event: push, tag: 'v*'}]", push("refs/heads/v1.2"), Changed{}, "wants tag v*, got branch v1.2"},
		{"[{event: push, tag: 'v*'}]", push("refs/tags/x"), Changed{}, "wants tag v*, got x"},
		{"[{event: push, tag: 'v*', branch: main}]", push("refs/heads/main"), Changed{}, ""},
		{"[{event: push, tag: 'v*', branch: main}]", push("refs/tags/v1"), Changed{}, ""},
		{"[{event: [push, pull_request], tag: 'v*'}]", pull("v1", "opened"), Changed{}, "wants a pull request to branch none, got v1"},
		{"[{event: push, branch: ['**', '!dev']}]", push("refs/heads/dev"), Changed{}, "wants branch ** or !dev, got dev"},
		{"[{event: push, branch: ['!dev', '**']}]", push("refs/heads/dev"), Changed{}, "wants branch !dev or **, got dev"},
		{"[{event: push, branch: ['**', '!dev']}]", push("refs/heads/a/b"), Changed{}, ""},
		{"[{event: push, branch: '!dev'}]", push("refs/heads/main"), Changed{}, ""},
		{"[{event: push, branch: '!dev'}]", push("refs/heads/dev"), Changed{}, "wants branch !dev, got dev"},
		{"[{event: pull_request, branch: main}]", pull("main", "opened"), Changed{}, ""},
		{"[{event: pull_request, branch: main}]", pull("main", "reopened"), Changed{}, ""},
		{"[{event: pull_request, branch: main}]", pull("main", "synchronize"), Changed{}, ""},
		{"[{event: pull_request, branch: main}]", pull("main", ""), Changed{}, ""},
		{"[{event: pull_request, branch: main}]", pull("main", "closed"), Changed{}, "wants a pull request that was opened, reopened or synchronize, got closed"},
		{"[{event: pull_request, branch: main, types: []}]", pull("main", "opened"), Changed{}, ""},
		{"[{event: pull_request, branch: main, types: merged}]", pull("main", "merged"), Changed{}, ""},
		{"[{event: pull_request, branch: main, types: merged}]", pull("main", ""), Changed{}, "wants a pull request that was merged, got opened"},
		{"[{event: pull_request, branch: fork-branch}]", pull("main", "opened"), Changed{}, "wants a pull request to branch fork-branch, got main"},
		{"[{event: pull_request, branch: '**'}]", pipeline.Trigger{Kind: pipeline.PullRequest}, Changed{}, ""},
		{"[{event: push, branch: main, paths: 'src/**'}]", push("refs/heads/main"), files("doc/a", "src/a/b.go"), ""},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/main"), files("src/a.go"), "wants paths docs/** (changed: src/a.go)"},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/main"), files("a", "b", "c"), "wants paths docs/** (changed: a and 2 more)"},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/main"), files(), "wants paths docs/** (changed: nothing)"},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/main"), Changed{}, ""},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/main"), Changed{Files: []string{"x"}}, ""},
		{"[{event: push, branch: main, paths: []}]", push("refs/heads/main"), files("x"), ""},
		{"[{event: push, branch: main, paths: 'docs/**'}]", push("refs/heads/dev"), files("x"), "wants branch main, got dev"},
		{"[{event: schedule, schedule: [{cron: '@daily'}]}]", pipeline.Trigger{Kind: pipeline.Schedule}, Changed{}, ""},
		{"[{event: schedule, schedule: [{cron: '@daily'}]}]", pipeline.Trigger{Kind: pipeline.Schedule, Ref: "refs/heads/main"}, Changed{}, ""},
		{"[{event: schedule, schedule: [{cron: '@daily'}], branch: dev, paths: x}]", pipeline.Trigger{Kind: pipeline.Schedule, Ref: "refs/heads/main"}, files("y"), ""},
		{"[{event: schedule, schedule: [{cron: '@daily'}]}]", pipeline.Trigger{Kind: pipeline.Schedule, Ref: "refs/heads/dev"}, Changed{}, "schedules run on branch main, got dev"},
		{"[{event: schedule}]", pipeline.Trigger{Kind: pipeline.Schedule}, Changed{}, "has no schedule"},
		// The reason of the condition that came furthest is told.
		{"[{event: pull_request, branch: x}, {event: push, branch: main}]", push("refs/heads/dev"), Changed{}, "wants branch main, got dev"},
		{"[{event: push, branch: main}, {event: push, tag: v*}]", push("refs/heads/dev"), Changed{}, "wants branch main, got dev; or wants tag v*, got branch dev"},
		{"[{event: push, branch: main}, {event: push, branch: dev}]", push("refs/heads/dev"), Changed{}, ""},
	} {
		src := "steps: [{command: a}]\n"
		if c.when != "" {
			src = "when: " + c.when + "\n" + src
		}
		s := parse(t, src)
		ok, why := s.Match(c.trigger, "main", c.changed)
		require.Equal(t, c.why, why, "%s %v", c.when, c.trigger)
		require.Equal(t, c.why == "", ok)
	}
}

func TestB023OneRuleForBranchTagAndPath(t *testing.T) {
	t.Parallel()
	names := []string{"main", "feat/x", "feat/x/y", "Main", "a{b}", "ünïcode/ß", ".hidden/f", "weird[1]/f", "weird1/f"}
	for pattern, want := range map[string][]string{
		"*":             {"main", "Main", "a{b}"},
		"**":            names,
		"feat/*":        {"feat/x"},
		"feat/**":       {"feat/x", "feat/x/y"},
		"ma?n":          {"main"},
		"weird[1]/*":    {"weird1/f"},
		`weird\[1]/*`:   {"weird[1]/f"},
		"{main,feat/x}": {"main", "feat/x"},
		"*/*":           {"feat/x", "ünïcode/ß", ".hidden/f", "weird[1]/f", "weird1/f"},
		".hidden/*":     {".hidden/f"},
		"SRC/**":        nil,
		"feat":          nil,
		`a\{b\}`:        {"a{b}"},
		"**/x":          {"feat/x"},
		"ü*/?":          {"ünïcode/ß"},
	} {
		quote := strings.ReplaceAll(pattern, "'", "''")
		s := parse(t, "when: [{event: push, branch: ['"+quote+"'], tag: ['"+quote+"']}, "+
			"{event: pull_request, branch: '**', paths: ['"+quote+"']}]\nsteps: [{command: a}]\n")
		for _, name := range names {
			expect := false
			for _, w := range want {
				expect = expect || w == name
			}
			for _, tr := range []pipeline.Trigger{push("refs/heads/" + name), push("refs/tags/" + name), pull("main", "opened")} {
				ok, why := s.Match(tr, "main", Changed{Files: []string{name}, Known: true})
				require.Equal(t, expect, ok, "%s %s: %s", pattern, name, why)
			}
		}
	}
	for _, bad := range []string{"[", "", "{a", `a\`, "!"} {
		for _, key := range []string{"branch", "tag", "paths"} {
			spec, ds := Parse("x.yml", fmt.Appendf(nil, "when: [{event: push, branch: a, tag: b, %s: ['%s']}]\nsteps: [{command: a}]\n", key, bad), Limits{})
			if strings.Contains("branch tag", key) {
				spec, ds = Parse("x.yml", fmt.Appendf(nil, "when: [{event: push, %s: ['%s']}]\nsteps: [{command: a}]\n", key, bad), Limits{})
			}
			require.Nil(t, spec, "%s %q is an error, not a pattern that never matches", key, bad)
			require.NotEmpty(t, ds)
		}
	}
}

func TestB035Paths(t *testing.T) {
	t.Parallel()
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("gen/%d/file.txt", i)
	}
	for _, c := range []struct {
		paths string
		files []string
		want  bool
	}{
		{`["src/**"]`, []string{"doc/a", "src/x"}, true},
		{`["src/**"]`, []string{"src"}, true}, // a submodule at src
		{`["src/**"]`, many, false},
		{`["src/**"]`, append(many[:len(many):len(many)], "src/z"), true},
		{`["!doc/**"]`, []string{"doc/a"}, false},
		{`["!doc/**"]`, []string{"doc/a", "b"}, true},
		{`["src/**", "!**/*.md"]`, []string{"src/a.md"}, false},
		{`["src/**", "!**/*.md"]`, []string{"src/a.md", "b.go"}, false},
		{`["src/**", "!**/*.md"]`, []string{"src/a.md", "src/b.go"}, true},
		{`["SRC/**"]`, []string{"src/a"}, false},
		{`["src"]`, []string{"src/a"}, false},
		{`[".hidden/*"]`, []string{".hidden/f"}, true},
	} {
		s := parse(t, "when: [{event: push, branch: main, paths: "+c.paths+"}]\nsteps: [{command: a}]\n")
		ok, _ := s.Match(push("refs/heads/main"), "main", Changed{Files: c.files, Known: true})
		require.Equal(t, c.want, ok, "%s %d files", c.paths, len(c.files))
	}
}

func TestT33TooManyFilesCountAsUnknown(t *testing.T) {
	t.Parallel()
	s := parse(t, "when: [{event: push, branch: main, paths: src/**}]\nsteps: [{command: a}]\n")
	ok, _ := s.Match(push("refs/heads/main"), "main", Changed{Files: make([]string, maxChanged), Known: true})
	require.False(t, ok)
	ok, _ = s.Match(push("refs/heads/main"), "main", Changed{Files: make([]string, maxChanged+1), Known: true})
	require.True(t, ok)
}

func TestT33SlowPatternsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("aaaaaaaaa/", 409)
	files := make([]string, maxChanged)
	for i := range files {
		files[i] = long
	}
	pattern := "**/" + strings.Repeat("*a*/", 60) + "b"
	s := parse(t, "when: [{event: push, branch: main, paths: ['"+pattern+"']}]\nsteps: [{command: a}]\n")
	w := newWork()
	ok, _ := s.match(push("refs/heads/main"), "main", Changed{Files: files, Known: true}, w)
	require.True(t, ok, "what is too much to compare counts as unknown")
	require.Negative(t, w.left)
	require.Greater(t, alternatives("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"), maxAlternatives)
	require.Equal(t, 4, alternatives(`{a,b}\{c,d\}{e,f}`))
	require.Equal(t, 6, alternatives(`{a,{b,c,d}}`))
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	next := func(cron, zone, seed string) string {
		return Schedule{cron, zone}.Next(seed, at).UTC().Format("2006-01-02 15:04")
	}
	require.Equal(t, "2026-03-29 02:30", next("30 2 * * *", "UTC", ""))
	require.Equal(t, "2026-03-28 23:00", next("@daily", "Europe/Paris", ""))
	require.Equal(t, "2026-03-29 22:00", Schedule{"@daily", "Europe/Paris"}.Next("", at.Add(12*time.Hour)).UTC().Format("2006-01-02 15:04"), "summer time began")
	require.Equal(t, "2026-03-29 12:15", next("15 12 * * SUN", "", ""))
	require.True(t, Schedule{"nonsense", "UTC"}.Next("", at).IsZero())
	require.True(t, Schedule{"@daily", "Nowhere/Land"}.Next("", at).IsZero())

	spread := map[string]bool{}
	for i := range 200 {
		seed := fmt.Sprint("did:plc:", i)
		got := Schedule{"H H(1-4) * * *", "UTC"}.Next(seed, at)
		require.Equal(t, got, Schedule{"H H(1-4) * * *", "UTC"}.Next(seed, at))
		require.GreaterOrEqual(t, got.Hour(), 1)
		require.LessOrEqual(t, got.Hour(), 4)
		spread[got.Format("15:04")] = true
		for _, expr := range []string{"H * * * *", "H/15 * * * *", "H H H H H", "H(10-20)/5 H/6 * * *", "5,H 1,H(2-3) * * *", "* H H/9 * MON-FRI"} {
			require.False(t, Schedule{expr, "UTC"}.Next(seed, at).IsZero(), "%s %s", expr, seed)
		}
		first := Schedule{"H/15 * * * *", "UTC"}.Next(seed, at)
		second := Schedule{"H/15 * * * *", "UTC"}.Next(seed, first)
		require.Equal(t, 15*time.Minute, second.Sub(first))
	}
	require.Greater(t, len(spread), 100)
	for _, bad := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *",
		"H/0 * * * *", "H/61 * * * *", "H(9-3) * * * *", "H() * * * *", "HH * * * *", "H-5 * * * *", "TZ=UTC", "CRON_TZ=UTC",
		"TZ=UTC * * * *", "@every 1s", "@reboot", "a b c d e", "1-0 * * * *", "* * 31 2 * *", "é * * * *", "99999999999999999999 * * * *",
	} {
		_, err := parseCron(bad, "seed")
		require.ErrorIs(t, err, errCron, bad)
	}
}

func TestSkipMarker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options []string
		message string
		want    string
	}{
		{nil, "", ""},
		{nil, "fix a bug", ""},
		{[]string{"skip-ci"}, "fix", "skip-ci"},
		{[]string{"verbose-ci", " CI-Skip "}, "fix", "ci-skip"},
		{[]string{"skip-ci=false", "noskip-ci"}, "fix", ""},
		{nil, "fix [skip ci]", "[skip ci]"},
		{nil, "fix\n\nbody [CI SKIP] more", "[ci skip]"},
		{nil, "[skip spindle] x", "[skip spindle]"},
		{nil, "[skip  ci]", ""},
		{nil, "say `[skip ci]` to skip", ""},
		{nil, "say ``a ` [skip ci]`` to skip", ""},
		{nil, "a lone ` and [skip ci]", "[skip ci]"},
		{nil, "two `runs`` and [skip ci]", "[skip ci]"},
		{nil, "span `over\nlines [skip ci]` x", ""},
		{nil, "span `not over\n\nparagraphs [skip ci]` x", "[skip ci]"},
		{nil, "doc\n```\n[skip ci]\n```\n", ""},
		{nil, "doc\n~~~sh\n[skip ci]\n~~~\n", ""},
		{nil, "doc\n````\n```\n[skip ci]\n````\n", ""},
		{nil, "doc\n```\nx\n```\n[skip ci]", "[skip ci]"},
		{nil, "doc\n```\n[skip ci] in a fence that nobody closes", ""},
		{nil, "doc ```[skip ci]```", ""},
		{nil, strings.Repeat("`", 70_000), ""},
	} {
		got, skip := SkipMarker(c.options, c.message)
		require.Equal(t, c.want, got, "%.60q", c.message)
		require.Equal(t, c.want != "", skip)
	}
}
