package ingest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/internal/clock"
	"spindle/rbac"
	"spindle/store"
)

// everyone takes hints of everybody.
var everyone = New(Config{Store: openStore{}, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler), Count: func(string) {}})

// openStore has a policy that lets everybody in, and nothing else.
type openStore struct{ Store }

func (openStore) Gate(context.Context) (*rbac.Gate, error) { return rbac.New(1, rbac.Open, nil) }

func (openStore) Repos(context.Context) ([]store.RepoBinding, error) { return nil, nil }

// sound checks what every parser promises of a message that it took.
func sound(t *testing.T, f Frame, err error) {
	t.Helper()
	var said *HostError
	if errors.As(err, &said) {
		require.LessOrEqual(t, len(said.Error()), 2000)
		return
	}
	if err != nil {
		require.ErrorIs(t, err, ErrFrame)
		return
	}
	require.NotEmpty(t, f.Kind)
	if f.Kind != kindInfo {
		require.Positive(t, f.Pos)
	}
	require.GreaterOrEqual(t, f.TimeUS, int64(0))
	for _, h := range everyone.hints(t.Context(), f) {
		require.Contains(t, append(Collections(), syncHint, accountHint), h.Collection)
		require.Regexp(t, `^[A-Za-z0-9._~:-]{1,512}$`, h.Rkey)
		require.Regexp(t, `^did:[a-z]+:[A-Za-z0-9._:%-]+$`, h.DID)
	}
}

// TestNothingOfOursIsSkimmedOver lays out and spells frames in every way that JSON allows.
func TestNothingOfOursIsSkimmedOver(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		good(7),
		strings.ReplaceAll(good(7), ",", " ,\n\t"),
		strings.ReplaceAll(good(7), `":`, `" : `),
		strings.Replace(good(7), "org.tangled", `org\u002etangled`, 1),
		strings.Replace(good(7), "org.tangled", `\u006frg.tangle\u0064`, 1),
		strings.Replace(good(7), `"rev"`, `"record":{"collection":"app.bsky.feed.post","rkey":"x","text":"\"}{\\"},"rev"`, 1),
		strings.TrimSuffix(strings.Replace(good(7), `"kind":"commit",`, "", 1), "}") + `,"kind":"commit"}`,
		strings.Replace(good(7), `"commit":{`, `"x":[{"a":"]"},{}],"commit":{"cid":null,"n":1.5e3,`, 1),
	} {
		f, err := parseV1([]byte(s))
		require.NoError(t, err, s)
		require.EqualValues(t, 7, f.Pos, s)
		require.Equal(t, nobody, f.DID, s)
		require.Len(t, f.Ops, 1, s)
		require.Equal(t, ticketNSID, f.Ops[0].Collection, s)
	}
	f, err := parseV1([]byte(strings.Replace(good(7), ticketNSID, "app.bsky.feed.post", 1)))
	require.NoError(t, err)
	require.Equal(t, Frame{Kind: KindCommit, Pos: 7, TimeUS: 7}, f, "of others no more is read than where they stand")
	for _, broken := range []string{good(7)[:len(good(7))-1], good(7) + "x", good(7) + good(8), strings.Replace(good(7), `"rkey"`, `"key"`, 1)} {
		_, err := parseV1([]byte(broken))
		require.ErrorIs(t, err, ErrFrame, broken)
	}
}

func FuzzParseV1(f *testing.F) {
	for _, s := range []string{
		good(1),
		`{"did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":5,"kind":"identity","identity":{"seq":1}}`,
		`{"kind":"commit","commit":null}`,
		`{"did":"did:web:x%3A1","time_us":1,"kind":"commit","commit":{"rev":"..","collection":"org.tangled.review.patch","rkey":"../../x"}}`,
		`{"did":"did:plc:wrenaaaabbbbccccddddeeee","time_us":5,"kind":"commit","commit":{"rev":"a","collection":"app.bsky.feed.post","rkey":"c","record":{"text":"\"}\\"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := parseV1(b)
		sound(t, fr, err)
	})
}

func FuzzParseV2(f *testing.F) {
	for _, s := range []string{
		commitV2(3, ticketNSID), commitV2(4, "app.bsky.feed.post"),
		`{"$type":"error","error":"ConsumerTooSlow","message":"x"}`,
		`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#info","name":"OutdatedCursor"}}`,
		`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#account","seq":9,"did":"did:web:a.b","time":"2026-09-21T13:33:20.000001Z","active":false,"status":"takendown"}}`,
		`{"$type":"message","payload":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := parseV2(b)
		sound(t, fr, err)
	})
}

func FuzzParseFirehose(f *testing.F) {
	for _, m := range []string{
		"\xa2atg#commitbop\x01\xa1cseq\x01", "\xa1bop \xa2eerrorlFutureCursorgmessagebno",
		"\xa2atb#xbop\x01\xa3cseq\x07cdidkdid:web:a.bdtimet2026-09-21T13:33:20Z", "\x9f\x9f", "\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		f.Add([]byte(m))
	}
	for _, m := range firehoseSamples(f) {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := parseFirehose(b)
		sound(t, fr, err)
	})
}
