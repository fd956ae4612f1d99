package ingest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/api/atproto"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"
	cbg "github.com/whyrusleeping/cbor-gen"
)

// commitV2 is a commit of version 2 of Jetstream with the number seq.
func commitV2(seq int64, collection string) string {
	return fmt.Sprintf(`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#commit","seq":%d,"did":%q,"time":%q,`+
		`"rev":"3mzzzzzzzzz2a","operation":"create","collection":%q,"rkey":"3mzzzzzzzz%dz","record":{"$type":%q},"cid":"bafyrei"}}`,
		seq, nobody, time.Now().UTC().Format(time.RFC3339Nano), collection, 100+seq, collection)
}

// someCID is the name of some block.
func someCID(t testing.TB) cid.Cid {
	t.Helper()
	c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum([]byte("x"))
	require.NoError(t, err)
	return c
}

// firehoseMessage is one message: a header and a body.
func firehoseMessage(t testing.TB, kind string, body cbg.CBORMarshaler) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("\xa2bop\x01at")
	b.Write(cbg.CborEncodeMajorType(cbg.MajTextString, uint64(len(kind))))
	b.WriteString(kind)
	require.NoError(t, body.MarshalCBOR(&b))
	return b.Bytes()
}

// firehoseError is an error as a host tells it.
func firehoseError(name string) []byte {
	return fmt.Appendf([]byte("\xa1bop \xa1eerror"), "%c%s", 0x60+len(name), name)
}

// commitRepos is a commit of the firehose with the number seq that proves nothing.
func commitRepos(t testing.TB, seq int64, collection string, change ...func(*atproto.SyncSubscribeRepos_Commit)) []byte {
	t.Helper()
	link := lexutil.LexLink(someCID(t))
	m := &atproto.SyncSubscribeRepos_Commit{
		Seq: seq, Repo: nobody, Rev: "3mzzzzzzzzz2a", Time: time.Now().UTC().Format(time.RFC3339Nano), Commit: link,
		Ops:    []*atproto.SyncSubscribeRepos_RepoOp{{Action: "create", Path: fmt.Sprintf("%s/3mzzzzzzzz%dz", collection, 100+seq), Cid: &link}},
		Blocks: []byte{0},
	}
	for _, f := range change {
		f(m)
	}
	return firehoseMessage(t, "#commit", m)
}

func firehoseSamples(t testing.TB) [][]byte {
	status, handle := "takendown", "a.test"
	return [][]byte{
		commitRepos(t, 3, ticketNSID), commitRepos(t, 4, "app.bsky.feed.post"),
		commitRepos(t, 5, "app.bsky.feed.post", func(m *atproto.SyncSubscribeRepos_Commit) { m.TooBig, m.Ops = true, nil }),
		firehoseMessage(t, "#account", &atproto.SyncSubscribeRepos_Account{Did: nobody, Seq: 6, Status: &status, Time: "2026-09-21T13:33:20Z"}),
		firehoseMessage(t, "#identity", &atproto.SyncSubscribeRepos_Identity{Did: nobody, Seq: 7, Handle: &handle, Time: "2026-09-21T13:33:20Z"}),
		firehoseMessage(t, "#sync", &atproto.SyncSubscribeRepos_Sync{Did: nobody, Seq: 8, Rev: "3mzzzzzzzzz2a", Time: "2026-09-21T13:33:20Z", Blocks: []byte{1}}),
		firehoseMessage(t, "#info", &atproto.SyncSubscribeRepos_Info{Name: "OutdatedCursor"}),
		firehoseError("FutureCursor"),
	}
}

// TestFirehoseMessagesAreRead reads one message of each kind.
func TestFirehoseMessagesAreRead(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range firehoseSamples(t) {
		f, err := parseFirehose(m)
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, fmt.Sprintf("%s %d %d %s%s", f.Kind, f.Pos, len(f.Ops), f.Status, f.name))
	}
	require.Equal(t, []string{
		"commit 3 1 ", "commit 4 0 ", "sync 5 0 ", "account 6 0 takendown", "identity 7 0 ", "sync 8 0 ", "info 0 0 OutdatedCursor",
		`the host says "FutureCursor": ""`,
	}, got)
}
