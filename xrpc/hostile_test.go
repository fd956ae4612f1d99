package xrpc_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// What a handler gets obeys its lexicon, however the body spells it.
func TestT37HostileBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const put, cancel = "org.tangled.ci.putSecret", "org.tangled.ci.cancelPipeline"
	start := `{"repo":"` + repoDID + `",`
	for name, c := range map[string]struct {
		nsid, body string
		status     int
	}{
		"deep lists":        {put, start + `"key":"A","value":` + strings.Repeat("[", 400_000) + strings.Repeat("]", 400_000) + "}", 400},
		"deep objects":      {put, strings.Repeat(`{"a":`, 150_000) + "1" + strings.Repeat("}", 150_000), 400},
		"endless number":    {put, start + `"key":"A","value":1` + strings.Repeat("0", 900_000) + "}", 400},
		"1 MiB and a byte":  {put, start + `"key":"A","value":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
		"not UTF-8":         {put, start + "\"key\":\"A\",\"value\":\"canary\xff\xfe77\"}", 400},
		"two values":        {put, start + `"key":"A","value":"canary77"} {}`, 400},
		"key spelled KEY":   {put, start + `"KEY":"A","value":"canary77"}`, 400},
		"second, longer":    {put, start + `"key":"A","value":"canary77","VALUE":"canary` + strings.Repeat("x", 5000) + `"}`, 400},
		"second pipeline":   {cancel, start + `"pipeline":"` + liveID + `","Pipeline":"../../x"}`, 400},
		"Kelvin in a key":   {put, start + `"key":"A","\u212aey":"` + strings.Repeat("B", 60) + `","value":"canary77"}`, 400},
		"workflows by case": {cancel, start + `"pipeline":"` + liveID + `","WORKFLOWS":"all"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			a := b.post(t, c.nsid, ownerDID, c.body)
			require.Equal(t, c.status, a.status, a.text)
			require.NotContains(t, a.text, "canary")
			require.Less(t, len(a.text), 1000)
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
	require.Empty(t, b.secrets)
	require.Empty(t, b.calls())
	require.NotContains(t, b.logged.String(), "canary")
}

// A subscriber has nothing to say: what is long is refused by its header, before it is read.
func TestT35SubscriberThatSendsMuchIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ws := b.stream(t, logsPath+liveID)
	// FIN and binary, masked, with 64 bits of length: 1 TiB, of which nothing follows.
	_, err := ws.NetConn().Write([]byte{0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	require.Equal(t, websocket.CloseMessageTooBig, closedWith(t, ws))
}

func TestT22PathsLeadNowhereElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, path := range []string{
		"/xrpc/../spindle.key", "/xrpc/..%2f..%2fetc%2fpasswd", "/xrpc/org.tangled.ci.putSecret/", "/xrpc/ORG.TANGLED.CI.QUERYPIPELINES",
		"/xrpc//org.tangled.ci.queryPipelines", "/xrpc/org.tangled.ci.queryPipelines%00", "/xrpc/" + strings.Repeat("a", 8000),
		"/logs/knot.example.com/..%2f..%2fx/test", "/logs/knot.example.com/" + liveID + "/..%2f..%2fspindle.key", "/logs/../../x/y/z",
		"/.well-known/..%2fspindle.key", "/events/x", "/metrics", "/debug/pprof/heap",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodTrace} {
			a := b.do(t, method, path, "", nil)
			require.GreaterOrEqual(t, a.status, 400, "%s %s", method, path)
			require.NotEqual(t, 500, a.status, "%s %s", method, path)
			require.Less(t, len(a.text), 1000)
		}
	}
}
