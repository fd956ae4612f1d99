package xrpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
	"spindle/xrpc"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// dial opens a stream. The answer is that of the server when it refuses.
func (b *bench) dial(t *testing.T, path string, header http.Header) (*websocket.Conn, answer) {
	t.Helper()
	ws, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(b.url, "http")+path, header)
	if err != nil {
		require.NotNil(t, res, "%v", err)
		var a answer
		a.status, a.header = res.StatusCode, res.Header
		_ = json.NewDecoder(res.Body).Decode(&a)
		return nil, a
	}
	t.Cleanup(func() { _ = ws.Close() })
	require.NoError(t, ws.SetReadDeadline(time.Now().Add(patience)))
	return ws, answer{status: res.StatusCode}
}

func (b *bench) stream(t *testing.T, path string) *websocket.Conn {
	t.Helper()
	ws, a := b.dial(t, path, nil)
	require.NotNil(t, ws, "refused: %s", a.Error)
	return ws
}

// frame is one message of an event stream, decoded.
type frame struct {
	op      int64
	t       string
	control *orgtangled.CiSubscribePipelineLogs_Control
	data    *orgtangled.CiSubscribePipelineLogs_Data
	failed  map[string]any
}

func readFrame(t *testing.T, ws *websocket.Conn) frame {
	t.Helper()
	kind, b, err := ws.ReadMessage()
	require.NoError(t, err)
	require.Equal(t, websocket.BinaryMessage, kind)
	return parseFrame(t, b)
}

// parseFrame takes a frame apart with a reader of its own: two CBOR items, one after the other.
func parseFrame(t *testing.T, b []byte) frame {
	t.Helper()
	var head cbg.Deferred
	r := bytes.NewReader(b)
	require.NoError(t, head.UnmarshalCBOR(r))
	h, err := atdata.UnmarshalCBOR(head.Raw)
	require.NoError(t, err)
	f := frame{op: h["op"].(int64)}
	if f.op < 0 {
		rest := b[len(head.Raw):]
		f.failed, err = atdata.UnmarshalCBOR(rest)
		require.NoError(t, err)
		return f
	}
	f.t = h["t"].(string)
	switch f.t {
	case "#control":
		f.control = new(orgtangled.CiSubscribePipelineLogs_Control)
		require.NoError(t, f.control.UnmarshalCBOR(r))
	case "#data":
		f.data = new(orgtangled.CiSubscribePipelineLogs_Data)
		require.NoError(t, f.data.UnmarshalCBOR(r))
	default:
		t.Fatalf("frame of type %q", f.t)
	}
	require.Zero(t, r.Len(), "bytes after the body")
	return f
}

// closedWith reads until the close frame and tells its code.
func closedWith(t *testing.T, ws *websocket.Conn) int {
	t.Helper()
	for {
		_, _, err := ws.ReadMessage()
		if err == nil {
			continue
		}
		var c *websocket.CloseError
		require.ErrorAs(t, err, &c)
		return c.Code
	}
}

const logsPath = "/xrpc/org.tangled.ci.subscribePipelineLogs?repo=" + repoDID + "&pipeline="

func (b *bench) finish(name string, s pipeline.Status, reason string) {
	b.with(func() {
		for i := range b.pipelines[2].Workflows {
			if w := &b.pipelines[2].Workflows[i]; w.Name == name {
				w.Status, w.Reason, w.FinishedAt = s, reason, epoch
			}
		}
	})
}

// The stream begins with what is there, goes on with what comes, and ends when the workflow has ended.
func TestLogsAreFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	code := 0
	log := b.log(liveID, "a", 1)
	log.add(xrpc.LogLine{Kind: "control", Content: "build", Time: epoch, StepID: 1, StepStatus: "start", StepKind: "user", StepCommand: "make"}, data(1, "one\n"))
	ws := b.stream(t, logsPath+liveID+"&workflows=a")
	f := readFrame(t, ws)
	require.Equal(t, "#control", f.t)
	require.Equal(t, "make", *f.control.Command)
	require.Equal(t, "start", *f.control.Status)
	require.Equal(t, "user", *f.control.Kind)
	require.Nil(t, f.control.Outcome)
	require.Equal(t, int64(1), f.control.Step)
	require.Equal(t, "2026-11-01T10:00:00.000Z", f.control.Time)
	f = readFrame(t, ws)
	require.Equal(t, "one\n", f.data.Content)
	require.Equal(t, int64(1), *f.data.Line)
	require.Equal(t, "a", f.data.Workflow)

	log.add(data(1, "two\n"))
	require.Equal(t, "two\n", readFrame(t, ws).data.Content)
	log.add(xrpc.LogLine{Kind: "control", Content: "build", Time: epoch, StepID: 1, StepStatus: "end", StepKind: "user", StepOutcome: pipeline.Passed, ExitCode: &code})
	f = readFrame(t, ws)
	require.Equal(t, "success", *f.control.Outcome)
	require.Zero(t, *f.control.ExitCode)
	log.end()
	b.finish("a", pipeline.Passed, "")
	require.Equal(t, websocket.CloseNormalClosure, closedWith(t, ws))
}

// A workflow that has not begun is waited for; the stream of all ends with the last.
func TestStreamWaitsForEveryWorkflow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.log(liveID, "a", 1).add(data(0, "a\n"))
	b.log(liveID, "a", 1).end()
	ws := b.stream(t, logsPath+liveID)
	require.Equal(t, "a\n", readFrame(t, ws).data.Content)
	b.finish("a", pipeline.Passed, "")
	b.log(liveID, "b", 1).add(data(0, "b\n"))
	b.log(liveID, "b", 1).end()
	b.with(func() { b.pipelines[2].Workflows[1].Status, b.pipelines[2].Workflows[1].Attempt = pipeline.Running, 1 })
	f := readFrame(t, ws)
	require.Equal(t, "b\n", f.data.Content)
	require.Equal(t, "b", f.data.Workflow)
	b.finish("b", pipeline.Failed, "step 1 ended with 1")
	require.Equal(t, websocket.CloseNormalClosure, closedWith(t, ws))
}

// An attempt that was lost is followed by the next one, from its beginning.
func TestNextAttemptIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.log(liveID, "a", 1).add(data(0, "first\n"))
	b.log(liveID, "a", 1).end()
	ws := b.stream(t, logsPath+liveID+"&workflows=a")
	require.Equal(t, "first\n", readFrame(t, ws).data.Content)
	b.log(liveID, "a", 2).add(data(0, "second\n"))
	b.log(liveID, "a", 2).end()
	b.with(func() { b.pipelines[2].Workflows[0].Attempt = 2 })
	f := readFrame(t, ws)
	require.Equal(t, "second\n", f.data.Content)
	require.Zero(t, *f.data.Line)
	b.finish("a", pipeline.Passed, "")
	require.Equal(t, websocket.CloseNormalClosure, closedWith(t, ws))
}

// A workflow without a log says why it has none.
func TestWorkflowThatNeverRanSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ws := b.stream(t, logsPath+doneID+"&workflows=lint")
	f := readFrame(t, ws)
	require.Equal(t, "end", *f.control.Status)
	require.Equal(t, "failed", *f.control.Outcome)
	require.Equal(t, "line 3: unknown key\n", readFrame(t, ws).data.Content)
	require.Equal(t, websocket.CloseNormalClosure, closedWith(t, ws))
}

// A subscriber that was cut off goes on at the line it had not seen.
func TestCursorGoesOnWithoutAGap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log := b.log(liveID, "a", 1)
	for i := range 10 {
		log.add(data(0, strconv.Itoa(i)+"\n"))
	}
	ws := b.stream(t, logsPath+liveID+"&workflows=a&cursor=7")
	for i := 7; i < 10; i++ {
		f := readFrame(t, ws)
		require.Equal(t, strconv.Itoa(i)+"\n", f.data.Content)
		require.Equal(t, int64(i), *f.data.Line)
	}
	_, a := b.dial(t, logsPath+liveID+"&cursor=7", nil)
	require.Equal(t, "InvalidRequest", a.Error, "a cursor of two logs means nothing")
}

func TestStreamsAreRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for path, want := range map[string]string{
		logsPath + missingID:                             "PipelineNotFound",
		logsPath + foreignID:                             "PipelineNotFound",
		logsPath + "x":                                   "PipelineNotFound",
		logsPath + liveID + "&workflows=none":            "WorkflowNotFound",
		logsPath + liveID + "&workflows=a&workflows=a":   "WorkflowNotFound",
		logsPath + liveID + "&cursor=-1":                 "InvalidRequest",
		"/xrpc/org.tangled.ci.subscribePipelineLogs":     "InvalidRequest",
		"/logs/other.example.com/" + liveID + "/a":       "PipelineNotFound",
		"/logs/knot.example.com/" + missingID + "/a":     "PipelineNotFound",
		"/logs/knot.example.com/" + liveID + "/none.yml": "WorkflowNotFound",
		"/events?cursor=soon":                            "InvalidRequest",
		"/events?cursor=9999":                            "InvalidRequest",
	} {
		ws, a := b.dial(t, path, nil)
		require.Nil(t, ws, path)
		require.Equal(t, want, a.Error, path)
	}
	require.Equal(t, "InvalidRequest", b.get(t, logsPath+liveID, "").Error, "not a websocket")
}

// A fault after the upgrade is told as the last frame, without a word from inside.
func TestFaultOfAStreamIsItsLastFrame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ws := b.stream(t, logsPath+liveID+"&workflows=b")
	b.with(func() { b.fail = fmt.Errorf("disk: /var/lib/spindle") })
	f := readFrame(t, ws)
	require.Equal(t, int64(-1), f.op)
	require.Equal(t, "InternalServerError", f.failed["error"])
	require.NotContains(t, fmt.Sprint(f.failed), "/var/lib")
	require.Equal(t, websocket.CloseInternalServerErr, closedWith(t, ws))
}

func TestStreamsAreCapped(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *xrpc.Config) { c.Limits.Streams, c.Limits.StreamsPerAddress = 3, 2 })
	one := b.stream(t, logsPath+liveID)
	b.stream(t, logsPath+liveID)
	_, a := b.dial(t, "/events", nil)
	require.Equal(t, "TooManySubscribers", a.Error)
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.NoError(t, one.Close())
	require.Eventually(t, func() bool {
		ws, _ := b.dial(t, "/events", nil)
		return ws != nil
	}, patience, 10*time.Millisecond, "a slot that was given back can be taken")
}

// B-077: a stream on which nothing happens stays open, since it is pinged.
func TestB077IdleStreamIsPinged(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *xrpc.Config) { c.Limits.Ping = 10 * time.Millisecond })
	ws := b.stream(t, logsPath+liveID)
	pings := make(chan struct{}, 100)
	pong := ws.PingHandler()
	ws.SetPingHandler(func(s string) error {
		select {
		case pings <- struct{}{}:
		default:
		}
		return pong(s)
	})
	go func() { _, _, _ = ws.ReadMessage() }()
	for range 5 {
		select {
		case <-pings:
		case <-time.After(patience):
			t.Fatal("no ping")
		}
	}
}

// A subscriber that reads nothing holds up nobody, and is let go after the write deadline.
func TestSlowSubscriberHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *xrpc.Config) { c.Limits.Write, c.Limits.StreamsPerAddress = 4*time.Second, 2 }) // a busy machine may keep the quick one waiting for a second
	log := b.log(liveID, "a", 1)
	big := strings.Repeat("x", 1<<16)
	for range 400 { // 25 MiB, more than the kernel buffers
		log.add(data(0, big))
	}
	b.stream(t, logsPath+liveID+"&workflows=a") // never read
	quick := b.stream(t, logsPath+liveID+"&workflows=a")
	for range 400 {
		readFrame(t, quick)
	}
	require.Eventually(t, func() bool {
		ws, _ := b.dial(t, "/events", nil)
		return ws != nil
	}, patience, 20*time.Millisecond, "the slow one keeps its slot for ever")
}

func TestCloseEndsStreamsAndWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ws, ev := b.stream(t, logsPath+liveID), b.stream(t, "/events")
	require.NoError(t, b.server.Close(t.Context()))
	require.Equal(t, websocket.CloseGoingAway, closedWith(t, ws))
	require.Equal(t, websocket.CloseGoingAway, closedWith(t, ev))
	_, a := b.dial(t, "/events", nil)
	require.Equal(t, "NotEnoughResources", a.Error)
}

func TestOriginsThatMayOpenStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *xrpc.Config) { c.Origins = []string{"https://app.example.com"} })
	from := func(origin string) http.Header { return http.Header{"Origin": {origin}} }
	for origin, ok := range map[string]bool{
		"https://app.example.com": true, b.url: true, "https://evil.example.com": false, "http://app.example.com": false, "null": false, "https://app.example.com.evil.test": false,
	} {
		ws, a := b.dial(t, logsPath+liveID, from(origin))
		require.Equal(t, ok, ws != nil, origin)
		if !ok {
			require.Equal(t, "Forbidden", a.Error)
		} else {
			require.NoError(t, ws.Close())
		}
		got := b.do(t, http.MethodOptions, "/xrpc/"+notify, "", nil, "Origin", origin, "Access-Control-Request-Method", "POST")
		want := ""
		if ok {
			want = origin
		}
		require.Equal(t, want, got.header.Get("Access-Control-Allow-Origin"), origin)
		require.Empty(t, got.header.Get("Access-Control-Allow-Credentials"))
	}
}

func change(n int64, w string, s pipeline.Status, at time.Time) pipeline.Change {
	return pipeline.Change{Number: n, Pipeline: doneID, Repo: repoDID, Workflow: w, Step: -1, Status: s, At: at, Reason: "why", ExitCode: 3}
}

type eventFrame struct {
	Rkey   string            `json:"rkey"`
	NSID   string            `json:"nsid"`
	Cursor int64             `json:"cursor"`
	Event  map[string]any    `json:"event"`
	_      map[string]string // keeps the struct from being compared
}

func readEvent(t *testing.T, ws *websocket.Conn) eventFrame {
	t.Helper()
	kind, b, err := ws.ReadMessage()
	require.NoError(t, err)
	require.Equal(t, websocket.TextMessage, kind)
	var f eventFrame
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

// The older event stream tells each change of a workflow once, in order, from a number or from a time.
func TestOlderEventStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() {
		b.changes = []pipeline.Change{
			change(10, "test", pipeline.Waiting, epoch),
			change(11, "", pipeline.Running, epoch.Add(time.Second)), // of the pipeline: not told
			{Number: 12, Pipeline: doneID, Workflow: "test", Step: 0, Status: pipeline.Running, At: epoch.Add(time.Second)},
			change(13, "test", pipeline.Running, epoch.Add(2*time.Second)),
			change(20, "test", pipeline.Failed, epoch.Add(3*time.Second)),
		}
	})
	ws := b.stream(t, "/events?cursor=0")
	first := readEvent(t, ws)
	require.Equal(t, "sh.tangled.pipeline.status", first.NSID)
	require.Equal(t, "at://did:web:knot.example.com/sh.tangled.pipeline/"+doneID, first.Event["pipeline"])
	require.Equal(t, "pending", first.Event["status"])
	require.NotContains(t, first.Event, "error")
	require.Len(t, first.Rkey, 13)
	second, third := readEvent(t, ws), readEvent(t, ws)
	require.Equal(t, "running", second.Event["status"])
	require.Equal(t, "failed", third.Event["status"])
	require.Equal(t, "why", third.Event["error"])
	require.InDelta(t, 3, third.Event["exitCode"], 0)
	require.Equal(t, int64(20), third.Cursor)
	require.Less(t, first.Rkey, second.Rkey)

	live := b.stream(t, "/events")
	after := b.stream(t, "/events?cursor=13")
	when := b.stream(t, "/events?cursor="+strconv.FormatInt(epoch.Add(2*time.Second).UnixNano(), 10))
	early := b.stream(t, "/events?cursor="+strconv.FormatInt(epoch.Add(-time.Hour).UnixNano(), 10))
	late := b.stream(t, "/events?cursor="+strconv.FormatInt(epoch.Add(time.Hour).UnixNano(), 10))
	again := readEvent(t, after)
	require.Equal(t, third.Rkey, again.Rkey, "the same change has the same key")
	require.Equal(t, int64(20), readEvent(t, when).Cursor)
	for _, n := range []int64{10, 13, 20} {
		require.Equal(t, n, readEvent(t, early).Cursor)
	}
	b.with(func() { b.changes = append(b.changes, change(21, "lint", pipeline.Invalid, epoch.Add(4*time.Second))) })
	for _, s := range []*websocket.Conn{ws, live, after, when, early, late} {
		require.Equal(t, int64(21), readEvent(t, s).Cursor)
	}
}

// The older log stream sends the stored lines themselves; a workflow is named by its file, too.
func TestOlderLogStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log := b.log(liveID, "a", 1)
	log.add(xrpc.LogLine{Kind: "control", Content: "build", Time: epoch, StepStatus: "start", StepKind: "user", StepCommand: "make"}, data(0, "one\n"))
	log.end()
	b.finish("a", pipeline.Passed, "")
	for _, name := range []string{"a", "a.yml"} {
		ws := b.stream(t, "/logs/knot.example.com/"+liveID+"/"+name)
		_, first, err := ws.ReadMessage()
		require.NoError(t, err)
		require.JSONEq(t, `{"kind":"control","content":"build","time":"2026-11-01T10:00:00Z","step_id":0,"step_status":"start","step_kind":"user","step_command":"make"}`, string(first))
		_, second, err := ws.ReadMessage()
		require.NoError(t, err)
		require.JSONEq(t, `{"kind":"data","content":"one\n","time":"2026-11-01T10:00:00Z","step_id":0,"stream":"stdout"}`, string(second))
		require.Equal(t, websocket.CloseNormalClosure, closedWith(t, ws))
	}
	ws := b.stream(t, "/logs/knot.example.com/"+doneID+"/lint.yml")
	_, _, err := ws.ReadMessage()
	require.NoError(t, err)
	_, why, err := ws.ReadMessage()
	require.NoError(t, err)
	require.Contains(t, string(why), "line 3: unknown key")
}
