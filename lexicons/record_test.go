package lexicons_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/lexicon"
	cbg "github.com/whyrusleeping/cbor-gen"

	"github.com/stretchr/testify/require"

	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/lexicons/shtangled"
)

// view is what every generated record type can do.
type view interface {
	cbg.CBORMarshaler
	cbg.CBORUnmarshaler
}

// decode makes a decoder of T that gives it as a view.
func decode[T any, P interface {
	*T
	view
}](r lexicons.Record) (view, error) {
	v, err := lexicons.Decode[T, P](r)
	return P(v), err
}

// records are the record types, by NSID.
var records = map[string]func(lexicons.Record) (view, error){
	"org.tangled.repo.declaration":   decode[orgtangled.RepoDeclaration],
	"org.tangled.repo.manifest":      decode[orgtangled.RepoManifest],
	"org.tangled.graph.collaborator": decode[orgtangled.GraphCollaborator],
	"org.tangled.track.ticket":       decode[orgtangled.TrackTicket],
	"org.tangled.review.patch":       decode[orgtangled.ReviewPatch],
	"sh.tangled.repo":                decode[shtangled.Repo],
	"sh.tangled.repo.collaborator":   decode[shtangled.RepoCollaborator],
	"sh.tangled.spindle":             decode[shtangled.Spindle],
	"sh.tangled.spindle.member":      decode[shtangled.SpindleMember],
	"sh.tangled.repo.pull":           decode[shtangled.RepoPull],
	"sh.tangled.git.refUpdate":       decode[shtangled.GitRefUpdate],
	"sh.tangled.pipeline":            decode[shtangled.Pipeline],
	"sh.tangled.pipeline.status":     decode[shtangled.PipelineStatus],
}

// sample reads the sample of a record type, which has every field of its lexicon.
func sample(t testing.TB, nsid string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "records", nsid+".json"))
	require.NoError(t, err)
	return b
}

func TestEveryRecordTypeIsTested(t *testing.T) {
	t.Parallel()
	eachLexicon(t, func(t *testing.T, _ string, sf *lexicon.SchemaFile, _ []byte) {
		if _, ok := sf.Defs["main"].Inner.(lexicon.SchemaRecord); ok {
			require.Contains(t, records, sf.ID)
		}
	})
}

// A record with every field goes through the typed view and comes out as the same bytes, and obeys its lexicon.
func TestRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	for nsid, dec := range records {
		t.Run(nsid, func(t *testing.T) {
			t.Parallel()
			r, err := lexicons.FromJSON(sample(t, nsid))
			require.NoError(t, err)
			require.Equal(t, nsid, r.Type())
			require.NoError(t, r.Validate(cat))
			v, err := dec(r)
			require.NoError(t, err)
			var buf bytes.Buffer
			require.NoError(t, v.MarshalCBOR(&buf))
			require.Equal(t, r.Bytes(), buf.Bytes())
			again, err := lexicons.FromCBOR(buf.Bytes())
			require.NoError(t, err)
			require.Equal(t, r.CID(), again.CID())
			js, err := json.Marshal(v)
			require.NoError(t, err)
			require.JSONEq(t, string(sample(t, nsid)), string(js))
		})
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	for nsid, dec := range records {
		t.Run(nsid, func(t *testing.T) {
			t.Parallel()
			known, err := lexicons.FromJSON(sample(t, nsid))
			require.NoError(t, err)
			js := strings.Replace(string(sample(t, nsid)), "{", `{"later": {"deep": [1, {"x": null}]},`, 1)
			r, err := lexicons.FromJSON([]byte(js))
			require.NoError(t, err)
			require.NotEqual(t, known.CID(), r.CID())
			require.NoError(t, r.Validate(cat))
			v, err := dec(r)
			require.NoError(t, err, "a field of tomorrow is no fault today")
			var lossy bytes.Buffer
			require.NoError(t, v.MarshalCBOR(&lossy))
			require.NotEqual(t, r.Bytes(), lossy.Bytes(), "the view is lossy, which is why the bytes are kept")
			again, err := lexicons.FromCBOR(r.Bytes())
			require.NoError(t, err)
			require.Equal(t, r.CID(), again.CID())
			data, err := again.Data()
			require.NoError(t, err)
			require.Contains(t, data, "later")
		})
	}
}

// The CID is that of the data model's other implementations: a value fixed by hand-made bytes.
func TestCIDOfKnownBytes(t *testing.T) {
	t.Parallel()
	raw := append([]byte{0xa1, 0x65}, "$type"...)
	raw = append(append(raw, 0x72), "sh.tangled.spindle"...)
	r, err := lexicons.FromCBOR(raw)
	require.NoError(t, err)
	j, err := lexicons.FromJSON([]byte(`{"$type":"sh.tangled.spindle"}`))
	require.NoError(t, err)
	require.Equal(t, raw, j.Bytes())
	require.Equal(t, r.CID(), j.CID())
	require.True(t, strings.HasPrefix(r.CID().String(), "bafyrei"))
}

func TestBytesCannotBeChangedFromOutside(t *testing.T) {
	t.Parallel()
	r, err := lexicons.FromJSON(sample(t, "sh.tangled.spindle"))
	require.NoError(t, err)
	b := r.Bytes()
	clear(b)
	require.NotEqual(t, b, r.Bytes())
}

func TestMalformedRecordsAreRefusedByName(t *testing.T) {
	t.Parallel()
	typed := append(append([]byte{0x65}, "$type"...), append([]byte{0x72}, "sh.tangled.spindle"...)...)
	with := func(head byte, more ...byte) []byte { return append(append([]byte{head}, typed...), more...) }
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"empty":                {nil, lexicons.ErrMalformed},
		"not an object":        {[]byte{0x01}, lexicons.ErrMalformed},
		"null":                 {[]byte{0xf6}, lexicons.ErrMalformed},
		"cut":                  {with(0xa2), lexicons.ErrMalformed},
		"bytes after the end":  {with(0xa1, 0x00), lexicons.ErrMalformed},
		"no type":              {[]byte{0xa0}, lexicons.ErrNoType},
		"type is not an NSID":  {[]byte{0xa1, 0x65, '$', 't', 'y', 'p', 'e', 0x61, 'x'}, lexicons.ErrNoType},
		"huge string":          {with(0xa2, 0x61, 'a', 0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), lexicons.ErrMalformed},
		"huge array":           {with(0xa2, 0x61, 'a', 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), lexicons.ErrMalformed},
		"huge map":             {[]byte{0xbb, 0x80, 0, 0, 0, 0, 0, 0, 1}, lexicons.ErrMalformed},
		"deep arrays":          {with(0xa2, append([]byte{0x61, 'a'}, bytes.Repeat([]byte{0x81}, 5000)...)...), lexicons.ErrTooDeep},
		"too big":              {make([]byte, 1<<20+1), lexicons.ErrTooBig},
		"float":                {with(0xa2, 0x61, 'z', 0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0), lexicons.ErrMalformed},
		"float that is whole":  {append([]byte{0xa2, 0x61, 'z', 0xfb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0}, typed...), lexicons.ErrNotCanonical},
		"keys out of order":    {with(0xa2, 0x61, 'z', 0x01), lexicons.ErrNotCanonical},
		"key given twice":      {append([]byte{0xa3, 0x61, 'z', 0x01, 0x61, 'z', 0x02}, typed...), lexicons.ErrMalformed},
		"indefinite container": {[]byte{0xbf, 0xff}, lexicons.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := lexicons.FromCBOR(c.raw)
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	r, err := lexicons.FromJSON(sample(t, "sh.tangled.spindle"))
	require.NoError(t, err)
	_, err = lexicons.Decode[orgtangled.GraphCollaborator](r)
	require.ErrorIs(t, err, lexicons.ErrWrongType, "the same fields, another meaning")
	_, err = lexicons.Decode[orgtangled.RepoManifest](lexicons.Record{})
	require.ErrorIs(t, err, lexicons.ErrWrongType, "the zero Record is no record")
}

func TestWrongShapeIsRefused(t *testing.T) {
	t.Parallel()
	r, err := lexicons.FromJSON([]byte(`{"$type":"org.tangled.repo.manifest","owner":{"a":1}}`))
	require.NoError(t, err)
	_, err = lexicons.Decode[orgtangled.RepoManifest](r)
	require.ErrorIs(t, err, lexicons.ErrMalformed)
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	require.ErrorIs(t, r.Validate(cat), lexicons.ErrInvalid)
}

// withUnion is shaped as generated code shapes a record with a union, and decodes an unknown member as it does.
type withUnion struct {
	LexiconTypeID string      `json:"$type" cborgen:"$type,const=sh.tangled.spindle"`
	List          []*oneUnion `json:"list" cborgen:"list"`
}

type oneUnion struct{ A, B *orgtangled.EventPush }

func (w *withUnion) UnmarshalCBOR(io.Reader) error {
	w.List = []*oneUnion{{A: &orgtangled.EventPush{}}, {}}
	return nil
}

func TestUnknownUnionMemberOfARecordIsNamed(t *testing.T) {
	t.Parallel()
	r, err := lexicons.FromJSON(sample(t, "sh.tangled.spindle"))
	require.NoError(t, err)
	_, err = lexicons.Decode[withUnion](r)
	require.ErrorIs(t, err, lexicons.ErrUnknownMember)
	require.ErrorContains(t, err, "list[1]")
}

func FuzzDecode(f *testing.F) {
	cat, err := lexicons.NewCatalog()
	require.NoError(f, err)
	for nsid := range records {
		r, err := lexicons.FromJSON(sample(f, nsid))
		require.NoError(f, err)
		f.Add(r.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := lexicons.FromCBOR(raw)
		if err != nil {
			return
		}
		require.Equal(t, raw, r.Bytes())
		data, err := r.Data()
		require.NoError(t, err, "what was taken can be read again")
		js, err := json.Marshal(data)
		require.NoError(t, err)
		_ = js
		_ = r.Validate(cat)
		for _, dec := range records {
			_, _ = dec(r)
		}
	})
}
