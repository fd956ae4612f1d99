package xrpc_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"spindle/lexicons/orgtangled"
	"spindle/lexicons/shtangled"
	"spindle/pipeline"
	"spindle/store"
	"spindle/xrpc"
)

func TestQueryPipelinesPagesThroughAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var first, second orgtangled.CiQueryPipelines_Output
	b.get(t, "/xrpc/org.tangled.ci.queryPipelines?limit=2&repo="+repoDID, "").into(t, &first)
	require.Equal(t, int64(3), first.Total)
	require.Len(t, first.Pipelines, 2)
	require.Equal(t, liveID, first.Pipelines[0].Id)
	require.NotNil(t, first.Cursor)
	b.get(t, "/xrpc/org.tangled.ci.queryPipelines?limit=2&repo="+repoDID+"&cursor="+*first.Cursor+"&triggers=push&triggers=manual&statuses=held&commits="+sha, "").into(t, &second)
	require.Len(t, second.Pipelines, 1)
	require.Equal(t, doneID, second.Pipelines[0].Id)
	require.Nil(t, second.Cursor)
	require.Equal(t, store.Query{
		Repo: repoDID, Commits: []string{sha}, Kinds: []pipeline.Kind{pipeline.Push, pipeline.Manual}, Statuses: []pipeline.Status{pipeline.Held}, Limit: 2, Before: heldID,
	}, b.lastQuery)
	var none orgtangled.CiQueryPipelines_Output
	a := b.get(t, "/xrpc/org.tangled.ci.queryPipelines?repo="+maloryDID, "")
	a.into(t, &none)
	require.Contains(t, a.text, `"pipelines":[]`, "an empty list is a list")
}

func TestGetPipelineTellsStepsAndBothVocabularies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var p orgtangled.CiDefs_Pipeline
	b.get(t, "/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+doneID, "").into(t, &p)
	require.Equal(t, "failed", *p.Status)
	require.Equal(t, "branch", *p.Trust)
	require.Equal(t, "lint", p.Workflows[0].Id)
	require.Equal(t, "failed", p.Workflows[0].Status)
	require.Equal(t, "invalid", *p.Workflows[0].State)
	require.Equal(t, "line 3: unknown key", *p.Workflows[0].Error)
	require.Equal(t, int64(3), *p.Workflows[1].ExitCode)
	require.Equal(t, "make", *p.Workflows[1].Steps[0].Command)
	require.Equal(t, "refs/heads/main", p.Trigger.EventPush.Ref)
	require.Equal(t, strings.Repeat("0", 40), p.Trigger.EventPush.OldSha)

	var held, live orgtangled.CiDefs_Pipeline
	b.get(t, "/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+heldID, "").into(t, &held)
	require.Equal(t, "pending", *held.Status)
	require.Equal(t, "held", *held.State)
	require.Equal(t, otherRepo, *held.SourceRepo)
	require.Equal(t, sha2, *held.Trigger.EventPullRequest.SourceSha)
	b.get(t, "/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+liveID, "").into(t, &live)
	require.Equal(t, "who", live.Trigger.CiTriggerManual.Inputs[0].Key)
}

// Nobody learns of another repository's pipeline: the answer is that of one that does not exist.
func TestForeignPipelineIsNotFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	foreign := b.get(t, "/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+foreignID, "")
	missing := b.get(t, "/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+missingID, "")
	require.Equal(t, "PipelineNotFound", foreign.Error)
	require.Equal(t, http.StatusNotFound, foreign.status)
	require.Equal(t, strings.ReplaceAll(missing.text, missingID, foreignID), foreign.text)
	for _, verb := range []string{"cancelPipeline", "retryPipeline", "approvePipeline"} {
		a := b.post(t, "org.tangled.ci."+verb, ownerDID, m{"repo": repoDID, "pipeline": foreignID})
		require.Equal(t, "PipelineNotFound", a.Error, verb)
	}
}

func TestVerbsAreForThoseWhoMay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	live := m{"repo": repoDID, "pipeline": liveID}
	require.Equal(t, 200, b.post(t, "org.tangled.ci.cancelPipeline", friendDID, m{"repo": repoDID, "pipeline": liveID, "workflows": []string{"b"}}).status)
	require.Equal(t, 200, b.post(t, "org.tangled.ci.cancelPipeline", bossDID, live).status)
	require.Equal(t, "Forbidden", b.post(t, "org.tangled.ci.cancelPipeline", maloryDID, live).Error)
	require.Equal(t, "OwnerBanned", b.post(t, "org.tangled.ci.cancelPipeline", bannedDID, live).Error)

	var re orgtangled.CiRetryPipeline_Output
	b.post(t, "org.tangled.ci.retryPipeline", friendDID, m{"repo": repoDID, "pipeline": doneID, "workflows": []string{"test"}}).into(t, &re)
	require.Equal(t, "3mzzzzzzzzz2a", re.Pipeline)
	require.Equal(t, "Forbidden", b.post(t, "org.tangled.ci.retryPipeline", maloryDID, m{"repo": repoDID, "pipeline": doneID}).Error)

	held := m{"repo": repoDID, "pipeline": heldID}
	require.Equal(t, "Forbidden", b.post(t, "org.tangled.ci.approvePipeline", maloryDID, held).Error)
	require.Equal(t, 200, b.post(t, "org.tangled.ci.approvePipeline", friendDID, held).status)
	require.Equal(t, []string{
		"cancel " + liveID + " [b] by " + friendDID + " as cancelled",
		"cancel " + liveID + " [] by " + bossDID + " as cancelled",
		"retry " + doneID + " [test] by " + friendDID,
		"approve " + heldID + " by " + friendDID,
	}, b.calls())
}

// Nobody lets their own code start.
func TestAuthorDoesNotApproveTheirOwnRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() { b.pipelines[1].Trigger.Actor = friendDID })
	a := b.post(t, "org.tangled.ci.approvePipeline", friendDID, m{"repo": repoDID, "pipeline": heldID})
	require.Equal(t, "Forbidden", a.Error)
	require.Empty(t, b.calls())
}

func TestUnapprovedPipelineIsNotRetryable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() { b.pipelines[1].Workflows[0].Status = pipeline.Cancelled })
	a := b.post(t, "org.tangled.ci.retryPipeline", ownerDID, m{"repo": repoDID, "pipeline": heldID})
	require.Equal(t, "PipelineNotRetryable", a.Error)
	require.Empty(t, b.calls())
}

func push(repo string) m {
	return m{"repo": repo, "event": m{"$type": "org.tangled.event.push", "repo": repo, "ref": "refs/heads/main", "oldSha": sha, "newSha": sha2, "actor": ownerDID, "pushOptions": []string{"verbose-ci"}}}
}

const notify = "org.tangled.event.notifyEvent"

// A push is told by the repository or by the knot of its DID document, and by nobody else.
func TestOnlyTheKnotTellsOfPushes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var out orgtangled.EventNotifyEvent_Output
	a := b.post(t, notify, knotDID, push(repoDID))
	a.into(t, &out)
	require.Equal(t, []string{liveID}, out.EventNotifyEvent_CiOutput.Pipelines)
	require.Equal(t, "1 workflow\n", *out.EventNotifyEvent_CiOutput.Message)
	require.Equal(t, 200, b.post(t, notify, repoDID, push(repoDID)).status)
	for _, who := range []string{"did:web:evil.example.com", ownerDID, bossDID, otherRepo} {
		require.Equal(t, "Forbidden", b.post(t, notify, who, push(repoDID)).Error, who)
	}
	told := b.calls()
	require.Len(t, told, 2)
	require.Equal(t, "push "+repoDID+" refs/heads/main "+sha2+" by "+ownerDID+" told by "+knotDID+" [verbose-ci]", told[0])
}

func TestMalformedPushesHaveNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, change := range map[string]func(e m){
		"another repo":    func(e m) { e["repo"] = otherRepo },
		"no full ref":     func(e m) { e["ref"] = "main" },
		"ref with dots":   func(e m) { e["ref"] = "refs/heads/../../x" },
		"ref with dash":   func(e m) { e["ref"] = "refs/heads/-x" },
		"ref with NUL":    func(e m) { e["ref"] = "refs/heads/a\x00b" },
		"upper-case hash": func(e m) { e["newSha"] = strings.ToUpper(sha2) },
		"short hash":      func(e m) { e["newSha"] = "abc" },
		"two kinds":       func(e m) { e["newSha"] = strings.Repeat("a", 64) },
		"actor no DID":    func(e m) { e["actor"] = "alice" },
		"no old hash":     func(e m) { delete(e, "oldSha") },
	} {
		body := push(repoDID)
		change(body["event"].(m))
		a := b.post(t, notify, knotDID, body)
		require.Equal(t, "InvalidRequest", a.Error, name)
	}
	for _, text := range []string{"", "null", "[]", "{", `{"repo":1}`, `{"repo":"` + repoDID + `"}`, strings.Repeat("[", 100000)} {
		require.Equal(t, "InvalidRequest", b.post(t, notify, knotDID, text).Error, "%.20s", text)
	}
	require.Empty(t, b.calls())
}

func TestManualRunNeedsTheRightToPush(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ask := func() m {
		return m{"repo": repoDID, "event": m{"$type": "org.tangled.ci.trigger.manual", "repo": repoDID, "commit": sha, "ref": "refs/heads/main",
			"workflows": []string{"test"}, "inputs": []m{{"key": "who", "value": "me"}}}}
	}
	require.Equal(t, 200, b.post(t, notify, friendDID, ask()).status)
	require.Equal(t, "Forbidden", b.post(t, notify, maloryDID, ask()).Error)
	require.Equal(t, "Forbidden", b.post(t, notify, knotDID, ask()).Error, "a knot does not speak for people")
	twice := ask()
	twice["event"].(m)["inputs"] = []m{{"key": "who", "value": "a"}, {"key": "WHO", "value": "b"}}
	require.Equal(t, "InvalidRequest", b.post(t, notify, friendDID, twice).Error)
	require.Equal(t, []string{"manual " + repoDID + " " + sha + " refs/heads/main by " + friendDID + " [test] [{who me}]"}, b.calls())
}

func TestSecretsAreNeverGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	uri := "at://" + ownerDID + "/sh.tangled.repo/3mzzzzzzzzy2a"
	require.Equal(t, 200, b.post(t, "org.tangled.ci.putSecret", friendDID, m{"repo": repoDID, "key": "TOKEN", "value": "hunter2"}).status)
	require.Equal(t, 200, b.post(t, "sh.tangled.repo.addSecret", ownerDID, m{"repo": uri, "key": "OTHER", "value": "hunter3"}).status)
	require.Equal(t, map[string]string{"TOKEN": "hunter2", "OTHER": "hunter3"}, b.secrets)

	var fresh orgtangled.CiListSecrets_Output
	a := b.get(t, "/xrpc/org.tangled.ci.listSecrets?repo="+repoDID, ownerDID)
	a.into(t, &fresh)
	require.Len(t, fresh.Secrets, 2)
	require.NotContains(t, a.text, "hunter")
	var old shtangled.RepoListSecrets_Output
	b.get(t, "/xrpc/sh.tangled.repo.listSecrets?repo="+uri, ownerDID).into(t, &old)
	require.Equal(t, uri, old.Secrets[0].Repo)

	for _, who := range []string{maloryDID, bossDID} {
		require.Equal(t, "Forbidden", b.get(t, "/xrpc/org.tangled.ci.listSecrets?repo="+repoDID, who).Error, who)
		require.Equal(t, "Forbidden", b.post(t, "org.tangled.ci.putSecret", who, m{"repo": repoDID, "key": "TOKEN", "value": "mine"}).Error, who)
	}
	require.Equal(t, "hunter2", b.secrets["TOKEN"])
	require.Equal(t, 200, b.post(t, "org.tangled.ci.deleteSecret", ownerDID, m{"repo": repoDID, "key": "TOKEN"}).status)
	require.Equal(t, 200, b.post(t, "sh.tangled.repo.removeSecret", ownerDID, m{"repo": uri, "key": "OTHER"}).status)
	require.Empty(t, b.secrets)

	for _, body := range []any{
		m{"repo": repoDID, "key": "TOKEN", "value": []string{"hunter4"}}, m{"repo": repoDID, "key": []string{"hunter4"}, "value": "x"},
		m{"repo": repoDID, "key": "1x", "value": "hunter4"}, m{"repo": repoDID, "key": "A", "value": "hunter4" + strings.Repeat("x", 5000)},
		m{"repo": repoDID, "key": "A B", "value": "hunter4"}, m{"repo": repoDID, "key": "A", "value": "hunter4\x00"}, `{"value":"hunter4"`,
	} {
		a := b.post(t, "org.tangled.ci.putSecret", ownerDID, body)
		require.Equal(t, 400, a.status, a.text)
		require.NotContains(t, a.text, "hunter4")
	}
	require.NotContains(t, b.logged.String(), "hunter")
}

func TestWorkflowDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var list orgtangled.CiListWorkflowDefinitions_Output
	b.get(t, "/xrpc/org.tangled.ci.listWorkflowDefinitions?repo="+repoDID, "").into(t, &list)
	require.Equal(t, ".tangled/workflows/test.yml", list.Workflows[0].Source.CiDefs_FileSource.Path)
	require.Equal(t, int64(3), *list.Workflows[0].Diagnostics[0].Line)
	var one orgtangled.CiGetWorkflowDefinition_Output
	b.get(t, "/xrpc/org.tangled.ci.getWorkflowDefinition?repo="+repoDID+"&workflow=test&ref=refs/heads/x", "").into(t, &one)
	require.Equal(t, "test", one.Workflow.Id)
	require.Equal(t, []string{"definitions " + repoDID + " HEAD", "definitions " + repoDID + " refs/heads/x"}, b.calls())
	for _, ref := range []string{"--upload-pack=x", "a..b", "a%20b", "a%00b", "x%7E1"} {
		require.Equal(t, "RefNotFound", b.get(t, "/xrpc/org.tangled.ci.listWorkflowDefinitions?repo="+repoDID+"&ref="+ref, "").Error, ref)
	}
	require.Len(t, b.calls(), 2)
}

// A body holds no word of an inner error; the log does.
func TestInnerErrorsStayInside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() { b.fail = errors.New("open /var/lib/spindle/db: disk I/O error") })
	for _, a := range []answer{
		b.get(t, "/xrpc/org.tangled.ci.queryPipelines?repo="+repoDID, ""),
		b.get(t, "/xrpc/org.tangled.ci.listSecrets?repo="+repoDID, ownerDID),
		b.post(t, notify, knotDID, push(repoDID)),
		b.post(t, "org.tangled.ci.cancelPipeline", ownerDID, m{"repo": repoDID, "pipeline": liveID}),
	} {
		require.Equal(t, 500, a.status)
		require.Equal(t, `{"error":"InternalServerError","message":"the server failed; nothing is known to have changed"}`, a.text)
	}
	require.Contains(t, b.logged.String(), "disk I/O error")
}

func TestPanicIsAnAnswerAndTheServerGoesOn(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *xrpc.Config) { c.Metrics = reg })
	b.with(func() { b.boom = true })
	a := b.get(t, "/xrpc/org.tangled.ci.queryPipelines?repo="+repoDID, "")
	require.Equal(t, "InternalServerError", a.Error)
	require.NotContains(t, a.text, "boom")
	b.with(func() { b.boom = false })
	require.Equal(t, 200, b.get(t, "/xrpc/org.tangled.ci.queryPipelines?repo="+repoDID, "").status)
	families, err := reg.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			counted[f.GetName()] += x.GetCounter().GetValue()
		}
	}
	require.InDelta(t, 1, counted["spindle_xrpc_panics_total"], 0)
	require.InDelta(t, 1, counted["spindle_xrpc_calls_total"], 0, "the call that went well")
}

func TestDocumentsHealthAndReadiness(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Equal(t, `{"id":"did:web:ci.example.com"}`, b.get(t, "/.well-known/did.json", "").text)
	require.Equal(t, 404, b.get(t, "/none", "").status)
	require.Equal(t, `{"status":"ok"}`, b.get(t, "/_health", "").text)
	require.Equal(t, 200, b.get(t, "/_ready", "").status)
	b.with(func() { b.notReady = "the database does not answer" })
	a := b.get(t, "/_ready", "")
	require.Equal(t, 503, a.status)
	require.Contains(t, a.text, "the database does not answer")
	b.with(func() { b.drain = true })
	require.Contains(t, b.get(t, "/_ready", "").text, "draining")
	require.Equal(t, 200, b.get(t, "/_health", "").status, "a draining server is alive")
	var owner shtangled.Owner_Output
	b.get(t, "/xrpc/sh.tangled.owner", "").into(t, &owner)
	require.Equal(t, bossDID, owner.Owner)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := xrpc.New(xrpc.Config{})
	require.ErrorContains(t, err, "is missing")
	w := newWorld()
	_, err = xrpc.New(xrpc.Config{Pipelines: w, Repos: w, Policy: w, Verbs: w, Retries: w, Definitions: w, Secrets: w, Logs: w, Ingest: w, Tokens: w, Knots: w, Limits: xrpc.Limits{Streams: -1}})
	require.ErrorContains(t, err, "negative")
	require.NoError(t, func() error {
		s, err := xrpc.New(xrpc.Config{Pipelines: w, Repos: w, Policy: w, Verbs: w, Retries: w, Definitions: w, Secrets: w, Logs: w, Ingest: w, Tokens: w, Knots: w})
		if err != nil {
			return err
		}
		return s.Close(context.Background())
	}())
}
