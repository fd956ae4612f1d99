package runner_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/workflow"
)

// env is the sorted environment that the command printenv got in a run of j, with the pipeline's id as ID.
func (w *world) env(j job) []string {
	w.t.Helper()
	row := w.run(j)
	require.Equal(w.t, pipeline.Passed, row.Status, row.Reason)
	w.mu.Lock()
	defer w.mu.Unlock()
	env := slices.Clone(w.envs[j.spec.Steps[0].Command])
	slices.Sort(env)
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], string(row.Pipeline), "ID")
	}
	return env
}

// always is what every run is told.
var always = []string{
	"CI=true",
	"HOME=/home/spindle-workflow",
	"TANGLED_COMMIT_SHA=" + sha,
	"TANGLED_PIPELINE_ID=ID",
	"TANGLED_REPO_DEFAULT_BRANCH=main",
	"TANGLED_REPO_DID=" + alice,
	"TANGLED_REPO_KNOT=knot.example",
	"TANGLED_REPO_NAME=3kself",
	"TANGLED_REPO_REPO_DID=" + repo,
	"TANGLED_REPO_URL=https://knot.example/" + repo,
	"TANGLED_SHA=" + sha,
}

func TestEnvironmentIsCompleteAndExact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*job)
		more   []string
	}{
		"push to a branch": {func(*job) {}, []string{
			"TANGLED_PIPELINE_KIND=push",
			"TANGLED_REF=refs/heads/main", "TANGLED_REF_NAME=main", "TANGLED_REF_TYPE=branch",
		}},
		"push of a tag": {func(j *job) { j.trigger.Ref = "refs/tags/v1/rc" }, []string{
			"TANGLED_PIPELINE_KIND=push",
			"TANGLED_REF=refs/tags/v1/rc", "TANGLED_REF_NAME=v1/rc", "TANGLED_REF_TYPE=tag",
		}},
		"push of another ref": {func(j *job) { j.trigger.Ref = "refs/notes/x" }, []string{
			"TANGLED_PIPELINE_KIND=push", "TANGLED_REF=refs/notes/x", "TANGLED_REF_NAME=refs/notes/x",
		}},
		"pull request from a fork": {func(j *job) { *j = j.fromFork() }, []string{
			"TANGLED_PIPELINE_KIND=pull_request",
			"TANGLED_PR_ACTION=opened", "TANGLED_PR_SOURCE_BRANCH=fix", "TANGLED_PR_SOURCE_SHA=" + sha, "TANGLED_PR_TARGET_BRANCH=main",
			"TANGLED_REF=refs/heads/fix", "TANGLED_REF_NAME=fix", "TANGLED_REF_TYPE=branch",
		}},
		"pull request without a branch": {func(j *job) {
			*j = j.fromFork()
			j.trigger.Pull.SourceBranch, j.trigger.Pull.SourceRepo = "", repo
		}, []string{
			"TANGLED_PIPELINE_KIND=pull_request",
			"TANGLED_PR_ACTION=opened", "TANGLED_PR_SOURCE_SHA=" + sha, "TANGLED_PR_TARGET_BRANCH=main",
		}},
		"by hand, of a commit": {func(j *job) { j.trigger.Kind, j.trigger.Ref = pipeline.Manual, "" }, []string{
			"TANGLED_PIPELINE_KIND=manual",
		}},
		"by hand, with inputs": {func(j *job) {
			j.trigger.Kind = pipeline.Manual
			j.trigger.Inputs = []pipeline.Input{
				{Key: "target", Value: "prod"}, {Key: "dry-run", Value: ""}, {Key: "dry_run", Value: "wins"},
				{Key: "é", Value: "x"}, {Key: "", Value: "y"}, {Key: "lines", Value: "a\nLD_PRELOAD=/x.so"},
			}
		}, []string{
			"TANGLED_PIPELINE_KIND=manual",
			"TANGLED_INPUT_DRY_RUN=wins", "TANGLED_INPUT_LINES=a\nLD_PRELOAD=/x.so", "TANGLED_INPUT_TARGET=prod",
			"TANGLED_REF=refs/heads/main", "TANGLED_REF_NAME=main", "TANGLED_REF_TYPE=branch",
		}},
		"on a schedule": {func(j *job) { j.trigger.Kind = pipeline.Schedule }, []string{
			"TANGLED_PIPELINE_KIND=schedule",
			"TANGLED_REF=refs/heads/main", "TANGLED_REF_NAME=main", "TANGLED_REF_TYPE=branch",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
				return engines.Result{}, nil, true
			}
			j := does("printenv")
			c.change(&j)
			want := append(slices.Clone(always), c.more...)
			slices.Sort(want)
			require.Equal(t, want, w.env(j))
		})
	}
}

// The workflow's variables yield to the secrets, those to the step's, and all of them to what the spindle says:
// no workflow can tell its steps a false commit.
func TestEnvironmentPrecedence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.command = func(context.Context, engines.Command) (engines.Result, error, bool) {
		return engines.Result{}, nil, true
	}
	w.secrets = func() (map[string]string, error) {
		return map[string]string{"B": "secret value", "C": "secret value", "TANGLED_SHA": "forged value", "PEM": "-----\nPATH=/evil\n-----"}, nil
	}
	j := does("printenv")
	j.spec.Environment = []workflow.Env{{Key: "A", Value: "workflow"}, {Key: "B", Value: "workflow"}, {Key: "C", Value: "workflow"}, {Key: "D", Value: "workflow"}, {Key: "HOME", Value: "/evil"}}
	j.spec.Steps[0].Environment = []workflow.Env{{Key: "C", Value: "step"}, {Key: "D", Value: "step"}, {Key: "CI", Value: "no"}, {Key: "EMPTY", Value: ""}}
	env := w.env(j)
	want := append(slices.Clone(always), "A=workflow", "B=secret value", "C=step", "D=step", "EMPTY=", "PEM=-----\nPATH=/evil\n-----",
		"TANGLED_PIPELINE_KIND=push", "TANGLED_REF=refs/heads/main", "TANGLED_REF_NAME=main", "TANGLED_REF_TYPE=branch")
	slices.Sort(want)
	require.Equal(t, want, env, "each name once; a line break in a value makes no variable (B-121)")
}

// B-119, T15: code from outside gets no secret and no token, whatever the rooms that keep them would hand out.
func TestB119SecretsNeverReachUntrustedCode(t *testing.T) {
	t.Parallel()
	for _, trust := range []pipeline.Trust{pipeline.TrustFork, pipeline.TrustApproved} {
		t.Run(trust.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.generous()
			j := does("printenv KEY; printenv TANGLED_ID_TOKEN; true").fromFork()
			j.trust, j.spec.Audience = trust, "https://cloud.example"
			for _, kv := range w.env(j) {
				require.NotContains(t, kv, secret)
				require.NotContains(t, kv, token)
			}
			for _, e := range []string{"secrets", "token", "released"} {
				require.NotContains(t, w.seen(), e)
			}
		})
	}
	for _, trust := range []pipeline.Trust{pipeline.TrustBranch, pipeline.TrustProtected} {
		t.Run(trust.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.generous()
			j := does("printenv KEY; printenv TANGLED_ID_TOKEN")
			j.trust, j.spec.Audience = trust, "https://cloud.example"
			row := w.run(j)
			require.Equal(t, pipeline.Passed, row.Status)
			require.Contains(t, w.envs["printenv KEY; printenv TANGLED_ID_TOKEN"], "KEY="+secret)
			require.Contains(t, w.envs["printenv KEY; printenv TANGLED_ID_TOKEN"], "TANGLED_ID_TOKEN="+token)
			require.NotContains(t, w.text(row), secret, "masked")
			require.NotContains(t, w.text(row), token, "masked")
		})
	}
	t.Run("no audience, no token", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.generous()
		w.run(does("true"))
		require.NotContains(t, w.seen(), "token")
	})
}

// generous hands secrets and tokens to whoever asks.
func (w *world) generous() {
	w.secrets = func() (map[string]string, error) { return map[string]string{"KEY": secret}, nil }
	w.token = func() (string, error) { return token, nil }
}

// T12, T13: a fork's run does not start before somebody let it, and has no secrets after that either.
func TestT13ForkRunsOnlyAfterAnApprovalAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.generous()
	id := w.plan(does("printenv KEY").fromFork(), pipeline.Held)
	require.Nil(t, w.claim())
	require.NoError(t, w.Approve(context.Background(), id, alice, nil, nil))
	c := w.claim()
	require.Equal(t, pipeline.TrustApproved, c.Pipeline.Trust)
	runner.New(w.cfg).Execute(context.Background(), c)
	row := w.row(c)
	require.Equal(t, pipeline.Failed, row.Status, "printenv finds no such variable")
	require.NotContains(t, w.text(row), secret)
	require.NotContains(t, w.seen(), "secrets")
}

// The checkout runs before anything of the repository is trusted: it is given no secret.
func TestCheckoutHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.generous()
	j := does("true")
	j.spec.Clone = workflow.Clone{Depth: 1}
	require.Equal(t, pipeline.Passed, w.run(j).Status)
	require.Equal(t, []string{"GIT_TERMINAL_PROMPT=0"}, w.envs["checkout"])
}

// T01: an owner who is banned between the start and the secrets is handed nothing.
func TestT01BannedBeforeTheSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.generous()
	c := w.claimed(does("printenv KEY"))
	require.NoError(t, w.Ban(context.Background(), alice, boss))
	runner.New(w.cfg).Execute(context.Background(), c)
	row := w.row(c)
	require.Equal(t, pipeline.Cancelled, row.Status)
	require.Contains(t, row.Reason, "banned")
	require.NotContains(t, w.seen(), "open")
}

// B-120: a fault while secrets are read names none of them.
func TestB120SecretsThatCannotBeReadAreNotNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secrets = func() (map[string]string, error) { return nil, &leaky{} }
	row := w.run(does("true"))
	require.Equal(t, pipeline.Error, row.Status)
	require.Equal(t, "the repository's secrets could not be read (not your code)", row.Reason)
	w.secrets = nil
	w.token = func() (string, error) { return "", &leaky{} }
	j := does("true")
	j.spec.Audience = "x"
	require.Equal(t, "the ID token of this run could not be signed", w.run(j).Reason)
}

type leaky struct{}

func (*leaky) Error() string { return "cannot open " + secret }
