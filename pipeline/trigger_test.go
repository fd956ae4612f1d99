package pipeline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	. "spindle/pipeline"
)

var sha = strings.Repeat("4b", 20)

func push() Trigger {
	return Trigger{Key: "k", Kind: Push, Repo: "did:plc:repo", Ref: "refs/heads/main", Commit: sha, Old: strings.Repeat("0", 40)}
}

func pull() Trigger {
	return Trigger{
		Key: "k", Kind: PullRequest, Repo: "did:plc:repo", Commit: sha,
		Pull: &Pull{SourceRepo: "did:plc:fork", SourceBranch: "fix", TargetBranch: "main", Head: sha, Action: "opened"},
	}
}

func TestTriggerCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		of     func() Trigger
		change func(*Trigger)
		bad    string // "" is good
	}{
		"push":                       {push, func(*Trigger) {}, ""},
		"pull request":               {pull, func(*Trigger) {}, ""},
		"manual, a bare commit":      {push, func(tr *Trigger) { tr.Kind, tr.Ref, tr.Old = Manual, "", "" }, ""},
		"schedule":                   {push, func(tr *Trigger) { tr.Kind = Schedule }, ""},
		"B038 sha256":                {push, func(tr *Trigger) { tr.Commit, tr.Old = strings.Repeat("4b", 32), strings.Repeat("0", 64) }, ""},
		"B039 a branch like an id":   {push, func(tr *Trigger) { tr.Ref = "refs/heads/" + sha }, ""},
		"B039 a branch named as ref": {push, func(tr *Trigger) { tr.Ref = "refs/heads/refs/heads/main" }, ""},
		"another ref":                {push, func(tr *Trigger) { tr.Ref = "refs/notes/commits" }, ""},
		"unicode":                    {push, func(tr *Trigger) { tr.Ref = "refs/heads/höhe/🐟" }, ""},
		"unknown kind":               {push, func(tr *Trigger) { tr.Kind = "tag" }, "kind"},
		"no repo":                    {push, func(tr *Trigger) { tr.Repo = "--mirror" }, "repository"},
		"B049 deleted":               {push, func(tr *Trigger) { tr.Commit = strings.Repeat("0", 40) }, "commit"},
		"B049 deleted, sha256":       {push, func(tr *Trigger) { tr.Commit = strings.Repeat("0", 64) }, "commit"},
		"B049 empty":                 {push, func(tr *Trigger) { tr.Commit = "" }, "commit"},
		"B047 sha like an option":    {push, func(tr *Trigger) { tr.Commit = "-p" }, "commit"},
		"short":                      {push, func(tr *Trigger) { tr.Commit = sha[:12] }, "commit"},
		"between the two hashes":     {push, func(tr *Trigger) { tr.Commit = strings.Repeat("4b", 25) }, "commit"},
		"not hex":                    {push, func(tr *Trigger) { tr.Commit = strings.Repeat("xy", 20) }, "commit"},
		"old is a name":              {push, func(tr *Trigger) { tr.Old = "main" }, "before"},
		"no ref":                     {push, func(tr *Trigger) { tr.Ref = "" }, "no ref"},
		"B047 ref like an option":    {push, func(tr *Trigger) { tr.Ref = "--upload-pack=touch /tmp/pwn" }, "ref"},
		"short name":                 {push, func(tr *Trigger) { tr.Ref = "main" }, "ref"},
		"line break":                 {push, func(tr *Trigger) { tr.Ref = "refs/heads/a\nLD_PRELOAD=x" }, "ref"},
		"too long":                   {push, func(tr *Trigger) { tr.Ref = "refs/heads/" + strings.Repeat("a", 2560) }, "ref"},
		"climbs":                     {push, func(tr *Trigger) { tr.Ref = "refs/heads/../../x" }, "ref"},
		"empty part":                 {push, func(tr *Trigger) { tr.Ref = "refs/heads//x" }, "ref"},
		"locked":                     {push, func(tr *Trigger) { tr.Ref = "refs/heads/x.lock" }, "ref"},
		"a pull without its part":    {pull, func(tr *Trigger) { tr.Pull = nil }, "pull request"},
		"a push with a pull":         {push, func(tr *Trigger) { tr.Pull = pull().Pull }, "pull request"},
		"another head":               {pull, func(tr *Trigger) { tr.Pull.Head = strings.Repeat("5c", 20) }, "head"},
		"no source":                  {pull, func(tr *Trigger) { tr.Pull.SourceRepo = "" }, "repository"},
		"NUL in an input":            {push, func(tr *Trigger) { tr.Inputs = []Input{{Key: "a", Value: "b\x00c"}} }, "NUL"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := c.of()
			c.change(&tr)
			err := tr.Check()
			if c.bad == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrTrigger)
			require.ErrorContains(t, err, c.bad)
		})
	}
}

func TestTriggerRef(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string][2]string{
		"refs/heads/main":            {"branch", "main"},
		"refs/heads/a/b":             {"branch", "a/b"},
		"refs/tags/v2":               {"tag", "v2"},
		"refs/heads/refs/tags/v2":    {"branch", "refs/tags/v2"},
		"refs/notes/commits":         {"", "refs/notes/commits"},
		"":                           {"", ""},
		"refs/heads/" + sha:          {"branch", sha},
		"refs/tags/refs/heads/upset": {"tag", "refs/heads/upset"},
	} {
		tr := Trigger{Ref: ref}
		require.Equal(t, want, [2]string{tr.RefType(), tr.RefName()}, ref)
	}
}

func TestCodeRepoIsTheForkOfAPullRequest(t *testing.T) {
	t.Parallel()
	require.Equal(t, "did:plc:repo", push().CodeRepo())
	require.Equal(t, "did:plc:fork", pull().CodeRepo())
	tr := pull()
	tr.Pull.SourceRepo = ""
	require.Equal(t, "did:plc:repo", tr.CodeRepo())
}

// A trigger is stored as JSON and read back for ever: nothing of it may get lost on the way.
func TestTriggerSurvivesJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		tr := Trigger{
			Key: text.Draw(t, "key"), Kind: rapid.SampledFrom([]Kind{Push, Manual}).Draw(t, "kind"), Repo: text.Draw(t, "repo"),
			Actor: text.Draw(t, "actor"), ActorSource: FromKnot, Ref: text.Draw(t, "ref"), Commit: text.Draw(t, "commit"),
			Inputs: []Input{{Key: text.Draw(t, "k"), Value: text.Draw(t, "v")}}, Only: []string{text.Draw(t, "only")},
			Pull: &Pull{Head: text.Draw(t, "head")}, RetryOf: "3k", At: noon,
		}
		b, err := json.Marshal(tr)
		require.NoError(t, err)
		var back Trigger
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, tr, back)
	})
}
