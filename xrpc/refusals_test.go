package xrpc_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/identity"
	"spindle/internal/clock"
	"spindle/lexicons"
	"spindle/pipeline"
	"spindle/rbac"
	"spindle/xrpc"
)

// refusal is what a lower level answers with when the caller shall know why.
type refusal struct{ code, sentence string }

func (r refusal) Error() string            { return "inner: " + r.sentence }
func (r refusal) Public() (string, string) { return r.code, r.sentence }

// Every code of the closed list is reached through the front door, has its status, and is documented; every
// name that a lexicon lists is on the list.
func TestEveryCodeIsReachedAndDocumented(t *testing.T) {
	t.Parallel()
	get := func(path, did string) func(*testing.T, *bench) answer {
		return func(t *testing.T, b *bench) answer { return b.get(t, path, did) }
	}
	post := func(nsid, did string, body any) func(*testing.T, *bench) answer {
		return func(t *testing.T, b *bench) answer { return b.post(t, nsid, did, body) }
	}
	fails := func(err error) func(*testing.T, *bench) answer {
		return func(t *testing.T, b *bench) answer {
			b.with(func() { b.ingestErr = err })
			return b.post(t, notify, knotDID, push(repoDID))
		}
	}
	moon := m{"repo": repoDID, "event": m{"$type": "com.example.moon"}}
	scenes := map[xrpc.Code]func(*testing.T, *bench) answer{
		xrpc.InvalidRequest:       get("/xrpc/org.tangled.ci.queryPipelines", ""),
		xrpc.MethodNotImplemented: get("/xrpc/org.tangled.ci.makeCoffee", ""),
		xrpc.MethodNotAllowed:     get("/xrpc/"+notify, ""),
		xrpc.UnsupportedMediaType: func(t *testing.T, b *bench) answer {
			return b.do(t, "POST", "/xrpc/"+notify, knotDID, "{}", "Content-Type", "text/plain")
		},
		xrpc.PayloadTooLarge: post(notify, knotDID, `{"x":"`+strings.Repeat("x", 1<<20)+`"}`),
		xrpc.NotEnoughResources: func(t *testing.T, b *bench) answer {
			b.with(func() { b.drain = true })
			return b.post(t, notify, knotDID, push(repoDID))
		},
		xrpc.InternalServerError: fails(errors.New("inner")),
		xrpc.UpstreamFailure: func(t *testing.T, b *bench) answer {
			b.with(func() { b.knotFail = errors.New("dial") })
			return b.post(t, notify, knotDID, push(repoDID))
		},
		xrpc.AuthenticationRequired: post(notify, "", push(repoDID)),
		xrpc.InvalidToken:           post(notify, "Bearer !TokenAudience", push(repoDID)),
		xrpc.ExpiredToken:           post(notify, "Bearer !TokenExpired", push(repoDID)),
		xrpc.ReplayedToken:          post(notify, "Bearer !TokenReplayed", push(repoDID)),
		xrpc.Forbidden:              post(notify, maloryDID, push(repoDID)),
		xrpc.OwnerBanned:            post("org.tangled.ci.cancelPipeline", bannedDID, m{"repo": repoDID, "pipeline": liveID}),
		xrpc.OwnerPaused: func(t *testing.T, b *bench) answer {
			b.with(func() { b.rules = append(b.rules[:1], b.rules[2:]...) }) // the owner is a member no more
			return b.post(t, "org.tangled.ci.retryPipeline", ownerDID, m{"repo": repoDID, "pipeline": doneID})
		},
		xrpc.RepoNotFound: get("/xrpc/org.tangled.ci.listSecrets?repo="+otherRepo, ownerDID),
		xrpc.RepoNotVerified: func(t *testing.T, b *bench) answer {
			b.with(func() { b.knotFail = identity.ErrNotFound })
			return b.post(t, notify, knotDID, push(repoDID))
		},
		xrpc.RefNotFound:          get("/xrpc/org.tangled.ci.listWorkflowDefinitions?ref=a..b&repo="+repoDID, ""),
		xrpc.PipelineNotFound:     get("/xrpc/org.tangled.ci.getPipeline?repo="+repoDID+"&pipeline="+missingID, ""),
		xrpc.PipelineNotBlocked:   post("org.tangled.ci.approvePipeline", friendDID, m{"repo": repoDID, "pipeline": liveID}),
		xrpc.PipelineEnded:        post("org.tangled.ci.cancelPipeline", ownerDID, m{"repo": repoDID, "pipeline": doneID}),
		xrpc.PipelineNotRetryable: post("org.tangled.ci.retryPipeline", ownerDID, m{"repo": repoDID, "pipeline": liveID}),
		xrpc.WorkflowNotFound:     get("/xrpc/org.tangled.ci.getWorkflowDefinition?repo="+repoDID+"&workflow=none", ""),
		xrpc.NoMatchingWorkflows:  fails(refusal{"NoMatchingWorkflows", "nothing matched"}),
		xrpc.EventNotSupported:    post(notify, knotDID, moon),
		xrpc.EventConflict:        fails(refusal{"EventConflict", "told before with another content"}),
		xrpc.SecretNotFound:       post("org.tangled.ci.deleteSecret", ownerDID, m{"repo": repoDID, "key": "NONE"}),
		xrpc.InvalidSecret:        post("org.tangled.ci.putSecret", ownerDID, m{"repo": repoDID, "key": "1", "value": "x"}),
		xrpc.OwnerNotFound:        nil, xrpc.RateLimitExceeded: nil, xrpc.TooManySubscribers: nil,
	}
	own := map[xrpc.Code]func(*xrpc.Config){
		xrpc.OwnerNotFound:      func(c *xrpc.Config) { c.Owner = "" },
		xrpc.RateLimitExceeded:  func(c *xrpc.Config) { c.Limits.AddressBurst, c.Limits.PerAddress = 1, 0.001 },
		xrpc.TooManySubscribers: func(c *xrpc.Config) { c.Limits.Streams = 1 },
	}
	scenes[xrpc.OwnerNotFound] = get("/xrpc/sh.tangled.owner", "")
	scenes[xrpc.RateLimitExceeded] = func(t *testing.T, b *bench) answer {
		b.get(t, "/xrpc/sh.tangled.owner", "")
		return b.get(t, "/xrpc/sh.tangled.owner", "")
	}
	scenes[xrpc.TooManySubscribers] = func(t *testing.T, b *bench) answer {
		b.stream(t, "/events")
		_, a := b.dial(t, "/events", nil)
		return a
	}
	docs, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	require.Len(t, scenes, len(xrpc.Codes()))
	for _, code := range xrpc.Codes() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			require.NotNil(t, scenes[code], "no scene reaches it")
			b := newBench(t, func(c *xrpc.Config) {
				if own[code] != nil {
					own[code](c)
				}
			})
			a := scenes[code](t, b)
			require.Equal(t, string(code), a.Error, a.text)
			require.Equal(t, code.Status(), a.status)
			require.GreaterOrEqual(t, a.status, 400)
			if a.text != "" {
				var shape map[string]string
				require.NoError(t, json.Unmarshal([]byte(a.text), &shape))
				require.Len(t, shape, 2)
				require.NotEmpty(t, shape["message"])
				require.NotContains(t, a.text, "inner")
			}
			if a.status == 429 || a.status == 503 || a.status == 502 {
				require.NotEmpty(t, a.header.Get("Retry-After"))
			}
			if a.status == 401 {
				require.NotEmpty(t, a.header.Get("WWW-Authenticate"))
			}
			require.Contains(t, string(docs), "| `"+string(code)+"` | "+strconv.Itoa(code.Status())+" |")
		})
	}
	listed := namesInLexicons(t)
	for name := range listed {
		require.NotZero(t, xrpc.Code(name).Status(), "a lexicon lists %s, which is no code", name)
	}
	transport := map[xrpc.Code]bool{xrpc.MethodNotImplemented: true, xrpc.MethodNotAllowed: true, xrpc.UnsupportedMediaType: true, xrpc.PayloadTooLarge: true}
	for _, code := range xrpc.Codes() {
		require.True(t, listed[string(code)] || transport[code], "no lexicon lists %s", code)
	}
}

// namesInLexicons is every error name that a lexicon lists.
func namesInLexicons(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	require.NoError(t, fs.WalkDir(lexicons.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(lexicons.FS, path)
		if err != nil {
			return err
		}
		var file struct {
			Defs map[string]struct{ Errors []struct{ Name string } }
		}
		if err := json.Unmarshal(b, &file); err != nil {
			return err
		}
		for _, e := range file.Defs["main"].Errors {
			out[e.Name] = true
		}
		return nil
	}))
	return out
}

// T10: a token that misses anything is refused by name, and has no effect.
func TestT10TokensAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, err := range tokenErrors() {
		name := identity.Reason(err)
		a := b.post(t, notify, "Bearer !"+name, push(repoDID))
		switch name {
		case "TokenReplayed":
			require.Equal(t, "ReplayedToken", a.Error)
		case "TokenExpired", "TokenEarly", "TokenLifetime":
			require.Equal(t, "ExpiredToken", a.Error, name)
		case "Unreachable":
			require.Equal(t, "UpstreamFailure", a.Error)
		case "Busy":
			require.Equal(t, "NotEnoughResources", a.Error)
		default:
			require.Equal(t, "InvalidToken", a.Error, name)
			require.Equal(t, 401, a.status)
		}
		require.NotContains(t, a.text, "/inner/detail")
	}
	another := b.token(knotDID, "org.tangled.ci.cancelPipeline")
	require.Equal(t, "InvalidToken", b.post(t, notify, another, push(repoDID)).Error, "a token for another method")
	once := b.token(knotDID, notify)
	require.Equal(t, 200, b.post(t, notify, once, push(repoDID)).status)
	require.Equal(t, "ReplayedToken", b.post(t, notify, once, push(repoDID)).Error)
	for _, bad := range []string{"Basic abc", "Bearer", "Bearer ", "bearer" + strings.Repeat("x", 9000), "Bearer " + strings.Repeat("x", 9000)} {
		require.Equal(t, "InvalidToken", b.post(t, notify, bad, push(repoDID)).Error, "%.20s", bad)
	}
	require.Len(t, b.calls(), 1)
}

// A code that is not on the list is a fault of ours, and its sentence is not told.
func TestUnknownCodesAreInternal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() { b.ingestErr = refusal{"Surprise", "the inner sentence"} })
	a := b.post(t, notify, knotDID, push(repoDID))
	require.Equal(t, "InternalServerError", a.Error)
	require.NotContains(t, a.text, "the inner sentence")
}

// What the transaction refuses is told with the same words as what the door refuses.
func TestSameWordsAtTheDoorAndInTheTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gate, err := rbac.New(1, rbac.Closed, b.rules)
	require.NoError(t, err)
	want := gate.May(maloryDID, rbac.Approve, rbac.Repo{DID: repoDID, Owner: ownerDID}).Sentence
	a := b.post(t, "org.tangled.ci.approvePipeline", maloryDID, m{"repo": repoDID, "pipeline": heldID})
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.Contains(t, a.text, string(text))
}

func slow(c *xrpc.Config, clk clock.Clock) {
	c.Clock = clk
	c.Limits = xrpc.Limits{PerAddress: 1, AddressBurst: 3, PerCaller: 1, CallerBurst: 2, Failures: 2, Remembered: 4}
}

func TestCallsAreCountedByAddressAndCaller(t *testing.T) {
	t.Parallel()
	clk := clock.NewManual(epoch)
	b := newBench(t, func(c *xrpc.Config) {
		slow(c, clk)
		c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8")}
	})
	from := func(xff, did string) answer {
		return b.do(t, http.MethodGet, "/xrpc/org.tangled.ci.listSecrets?repo="+repoDID, did, nil, "X-Forwarded-For", xff)
	}
	require.Equal(t, 200, from("203.0.113.1", ownerDID).status)
	require.Equal(t, 200, from("203.0.113.2", ownerDID).status)
	a := from("203.0.113.3", ownerDID)
	require.Equal(t, "RateLimitExceeded", a.Error, "one caller from many addresses")
	require.Equal(t, "2", a.header.Get("Retry-After"))
	clk.Advance(10 * time.Second)
	for _, xff := range []string{"2001:db8::1", "9.9.9.9, 2001:db8::2", "2001:db8::3, 10.1.1.1"} {
		require.Equal(t, "AuthenticationRequired", from(xff, "").Error, xff)
	}
	require.Equal(t, "RateLimitExceeded", from("2001:db8::4", "").Error, "one /64 is one address")
	require.Equal(t, "AuthenticationRequired", from("2001:db8:0:1::1", "").Error)
	clk.Advance(time.Second)
	require.Equal(t, "AuthenticationRequired", from("2001:db8::4", "").Error)
}

// Nobody makes us look up identities without end.
func TestRefusedTokensAreCounted(t *testing.T) {
	t.Parallel()
	clk := clock.NewManual(epoch)
	b := newBench(t, func(c *xrpc.Config) { slow(c, clk); c.Limits.AddressBurst = 100 })
	for range 2 {
		require.Equal(t, "InvalidToken", b.post(t, notify, "Bearer !BadSignature", push(repoDID)).Error)
	}
	a := b.post(t, notify, "Bearer !BadSignature", push(repoDID))
	require.Equal(t, "RateLimitExceeded", a.Error)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	clk.Advance(31 * time.Second)
	require.Equal(t, "InvalidToken", b.post(t, notify, "Bearer !BadSignature", push(repoDID)).Error)
}

// One address may be that of many: whoever is known here gets through while refused tokens pour in from it.
func TestRefusedTokensDoNotLockOutTheirNeighbours(t *testing.T) {
	t.Parallel()
	clk := clock.NewManual(epoch)
	b := newBench(t, func(c *xrpc.Config) { slow(c, clk); c.Limits.AddressBurst, c.Limits.CallerBurst = 1000, 100 })
	const regular = "did:plc:regularregularregularreg"
	list := "/xrpc/org.tangled.ci.listSecrets?repo=" + repoDID
	require.Equal(t, "Forbidden", b.get(t, list, regular).Error, "its token was good")
	for range 40 {
		b.post(t, notify, "Bearer !BadSignature", push(repoDID))
	}
	require.Equal(t, "RateLimitExceeded", b.post(t, notify, "Bearer !BadSignature", push(repoDID)).Error)
	require.Equal(t, 200, b.post(t, notify, knotDID, push(repoDID)).status, "the knot of a repository that is served")
	require.Equal(t, 200, b.get(t, list, ownerDID).status, "an owner")
	require.Equal(t, "Forbidden", b.get(t, list, regular).Error, "who was here before")
	require.Equal(t, "RateLimitExceeded", b.get(t, list, "did:plc:newcomernewcomernewcomer").Error)
	for range 10 {
		require.Equal(t, "InvalidToken", b.post(t, notify, "Bearer ~"+knotDID+"|x|y", push(repoDID)).Error, "a forgery in the knot's name")
	}
	require.Equal(t, 200, b.post(t, notify, knotDID, push(repoDID)).status)
}

// A pipeline that ends between the look and the act is told as ended.
func TestCancelThatComesTooLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.with(func() { b.cancelled = 0 })
	require.Equal(t, "PipelineEnded", b.post(t, "org.tangled.ci.cancelPipeline", ownerDID, m{"repo": repoDID, "pipeline": liveID}).Error)
	b.with(func() { b.pipelines[1].Workflows[0].Status = pipeline.Held })
}
