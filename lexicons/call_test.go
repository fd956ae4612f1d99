package lexicons_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atdata"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/stretchr/testify/require"

	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
)

const (
	notify = "org.tangled.event.notifyEvent"
	repo   = "did:plc:rrrrrrrrrrrrrrrrrrrrrrrr"
	sha    = "1111111111111111111111111111111111111111"
)

func TestInputIsHeldAgainstItsLexicon(t *testing.T) {
	t.Parallel()
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	push := `{"$type":"org.tangled.event.push","repo":"` + repo + `","ref":"refs/heads/main","oldSha":"` + sha + `","newSha":"` + sha + `","later":1}`
	for name, c := range map[string]struct {
		body string
		want error
	}{
		"push":             {`{"repo":"` + repo + `","event":` + push + `}`, nil},
		"unknown event":    {`{"repo":"` + repo + `","event":{"$type":"org.example.other"}}`, lexicons.ErrUnknownMember},
		"event untyped":    {`{"repo":"` + repo + `","event":{}}`, lexicons.ErrInvalid},
		"event missing":    {`{"repo":"` + repo + `"}`, lexicons.ErrInvalid},
		"event null":       {`{"repo":"` + repo + `","event":null}`, lexicons.ErrInvalid},
		"repo not a DID":   {`{"repo":"x","event":` + push + `}`, lexicons.ErrInvalid},
		"short sha":        {`{"repo":"` + repo + `","event":` + strings.Replace(push, sha, "11", 1) + `}`, lexicons.ErrInvalid},
		"not JSON":         {`{`, lexicons.ErrMalformed},
		"not an object":    {`[]`, lexicons.ErrMalformed},
		"null":             {`null`, lexicons.ErrMalformed},
		"two values":       {`{} {}`, lexicons.ErrMalformed},
		"not UTF-8":        {"{\"repo\":\"" + repo + "\",\"event\":" + push + ",\"x\":\"\xff\"}", lexicons.ErrMalformed},
		"repo twice":       {`{"repo":"` + repo + `","repo":"x","event":` + push + `}`, lexicons.ErrInvalid},
		"repo in capitals": {`{"repo":"` + repo + `","event":` + push + `,"REPO":"../x"}`, lexicons.ErrInvalid},
		"sha in capitals":  {`{"repo":"` + repo + `","event":` + strings.Replace(push, `"later"`, `"newSHA":"--upload-pack=x","later"`, 1) + `}`, lexicons.ErrInvalid},
		"ſ for s":          {`{"repo":"` + repo + `","event":` + strings.Replace(push, `"later"`, `"newſha":"-p","later"`, 1) + `}`, lexicons.ErrInvalid},
		"larger than all":  {`{"repo":"` + strings.Repeat("x", 2<<20) + `"}`, lexicons.ErrTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := lexicons.DecodeInput[orgtangled.EventNotifyEvent_Input](cat, notify, []byte(c.body))
			require.ErrorIs(t, err, c.want)
			if c.want == nil {
				require.Equal(t, "refs/heads/main", in.Event.EventPush.Ref)
			}
		})
	}
	_, err = lexicons.DecodeInput[orgtangled.EventNotifyEvent_Input](cat, "org.tangled.ci.getPipeline", []byte(`{}`))
	require.ErrorIs(t, err, lexicons.ErrInvalid)
	_, err = lexicons.DecodeInput[orgtangled.EventNotifyEvent_Input](cat, "org.example.none", []byte(`{}`))
	require.ErrorIs(t, err, lexicons.ErrInvalid)
}

func TestAnswerWithAnUnknownUnionMemberIsNamed(t *testing.T) {
	t.Parallel()
	good := `{"id":"3mzzzzzzzzy2a","commit":"` + sha + `","trigger":{"$type":"org.tangled.ci.trigger.schedule","cron":"@daily"},"workflows":[]}`
	p, err := lexicons.DecodeJSON[orgtangled.CiDefs_Pipeline]([]byte(good))
	require.NoError(t, err)
	require.Equal(t, "@daily", *p.Trigger.CiTriggerSchedule.Cron)
	_, err = lexicons.DecodeJSON[orgtangled.CiDefs_Pipeline]([]byte(strings.Replace(good, "schedule", "moon", 1)))
	require.ErrorIs(t, err, lexicons.ErrUnknownMember)
	require.ErrorContains(t, err, "trigger")
}

func TestParamsAreHeldAgainstTheirLexicon(t *testing.T) {
	t.Parallel()
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	const nsid = "org.tangled.ci.queryPipelines"
	p, err := lexicons.ParseParams(cat, nsid, url.Values{"repo": {repo}, "commits": {sha, sha}, "other": {"x"}})
	require.NoError(t, err)
	require.Equal(t, repo, p.String("repo"))
	require.Equal(t, int64(50), p.Int("limit"), "the default")
	require.Equal(t, []string{sha, sha}, p.Strings("commits"))
	require.NotContains(t, p, "other")
	for name, q := range map[string]url.Values{
		"required":     {},
		"format":       {"repo": {"x"}},
		"twice":        {"repo": {repo, repo}},
		"not a number": {"repo": {repo}, "limit": {"ten"}},
		"too many":     {"repo": {repo}, "limit": {"251"}},
		"too few":      {"repo": {repo}, "limit": {"0"}},
		"element":      {"repo": {repo}, "commits": {"x"}},
	} {
		_, err := lexicons.ParseParams(cat, nsid, q)
		require.ErrorIs(t, err, lexicons.ErrInvalid, name)
	}
	_, err = lexicons.ParseParams(cat, notify, nil)
	require.ErrorIs(t, err, lexicons.ErrInvalid)
	_, err = lexicons.ParseParams(cat, "org.tangled.ci.subscribePipelineLogs", url.Values{"repo": {repo}, "pipeline": {"3mzzzzzzzzy2a"}})
	require.NoError(t, err)
	_, err = lexicons.ParseParams(cat, "sh.tangled.owner", nil)
	require.NoError(t, err)
}

// Log frames are DAG-CBOR objects without a $type: the header of the frame names the message.
func TestLogFramesEncode(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	require.NoError(t, (&orgtangled.CiSubscribePipelineLogs_Data{Workflow: "test", Step: 1, Content: "hi\n", Stream: "stdout", Time: "2026-11-29T13:33:20Z"}).MarshalCBOR(&buf))
	data, err := atdata.UnmarshalCBOR(buf.Bytes())
	require.NoError(t, err)
	require.Equal(t, map[string]any{"workflow": "test", "step": int64(1), "content": "hi\n", "stream": "stdout", "time": "2026-11-29T13:33:20Z"}, data)
	buf.Reset()
	end, code := "end", int64(2)
	require.NoError(t, (&orgtangled.CiSubscribePipelineLogs_Control{Workflow: "test", Status: &end, ExitCode: &code}).MarshalCBOR(&buf))
	data, err = atdata.UnmarshalCBOR(buf.Bytes())
	require.NoError(t, err)
	require.Equal(t, "end", data["status"])
	require.Equal(t, int64(2), data["exitCode"])
}

// What is signed is the message without seq and sig, also when it has fields that are not known here.
func TestPushEventSignedKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	seq := int64(7)
	ev := orgtangled.GitPushEvent{Repo: repo, Pusher: repo, Time: "2026-11-29T13:33:20Z",
		Edits: []*orgtangled.GitPushEvent_Edit{{Name: "refs/heads/main", Old: sha, New: sha}}}
	var bare, full bytes.Buffer
	require.NoError(t, ev.MarshalCBOR(&bare))
	ev.Seq, ev.Sig = &seq, lexutil.LexBytes{1, 2, 3}
	require.NoError(t, ev.MarshalCBOR(&full))
	signed, err := lexicons.PushEventSigned(full.Bytes())
	require.NoError(t, err)
	require.Equal(t, bare.Bytes(), signed)
	later, err := atdata.MarshalCBOR(map[string]any{"repo": repo, "later": int64(1), "seq": int64(1), "sig": atdata.Bytes{9}})
	require.NoError(t, err)
	signed, err = lexicons.PushEventSigned(later)
	require.NoError(t, err)
	data, err := atdata.UnmarshalCBOR(signed)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"repo": repo, "later": int64(1)}, data)
	_, err = lexicons.PushEventSigned([]byte{0x81})
	require.ErrorIs(t, err, lexicons.ErrMalformed)
}

func TestNamesOfOtherRecords(t *testing.T) {
	t.Parallel()
	const other = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	uri, err := lexicons.TicketURI(repo, "3mzzzzzzzzy2a")
	require.NoError(t, err)
	require.Equal(t, "at://"+repo+"/org.tangled.track.ticket/3mzzzzzzzzy2a", uri.String())
	uri, err = lexicons.TicketURI(repo, "at://"+other+"/org.tangled.track.ticket/x")
	require.NoError(t, err)
	require.Equal(t, other, uri.Authority().String())
	uri, err = lexicons.DeclarationURI(repo, "knit")
	require.NoError(t, err)
	require.Equal(t, "at://"+repo+"/org.tangled.repo.declaration/knit", uri.String())
	for _, bad := range []string{"", "a b", "at://" + other, "at://alice.example.com/org.tangled.track.ticket/x", "at://" + other + "/org.tangled.repo.manifest/self"} {
		_, err := lexicons.TicketURI(repo, bad)
		require.ErrorIs(t, err, lexicons.ErrInvalid, bad)
		_, err = lexicons.DeclarationURI(repo, bad)
		require.ErrorIs(t, err, lexicons.ErrInvalid, bad)
	}
	_, err = lexicons.DeclarationURI(repo, "at://"+other+"/org.tangled.repo.declaration/knit")
	require.ErrorIs(t, err, lexicons.ErrInvalid, "somebody else's declaration")
}
