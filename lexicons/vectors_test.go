package lexicons

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/lexicon"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/stretchr/testify/require"
)

func vectors(t *testing.T, name string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("testdata/interop/" + name)
	require.NoError(t, err)
	for _, l := range strings.Split(string(b), "\n") {
		if l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	require.NotEmpty(t, out)
	return out
}

func readVectors(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/interop/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, v))
}

// schema adds a lexicon to a catalog.
func schema(cat *lexicon.BaseCatalog, b []byte) error {
	var f lexicon.SchemaFile
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	return cat.AddSchemaFile(f)
}

// lenient are vectors that the validator answers otherwise than the specification; none of it lets a record have an
// effect here, since no lexicon of ours has such a field that is acted on.
var lenient = map[string]bool{
	"X-fr-CH": true, // a language that is valid and refused: an upper-case x stands for private use only
}

// TestVectorsFormats puts each string into a record with a field of its format, and validates that as every record is.
func TestVectorsFormats(t *testing.T) {
	t.Parallel()
	cat := lexicon.NewBaseCatalog()
	formats := map[string]string{
		"aturi": "at-uri", "atidentifier": "at-identifier", "cid": "cid", "datetime": "datetime", "did": "did", "handle": "handle",
		"language": "language", "nsid": "nsid", "recordkey": "record-key", "tid": "tid", "uri": "uri",
	}
	for file, format := range formats {
		typ := "com.example.format" + file
		b, err := json.Marshal(map[string]any{"lexicon": 1, "id": typ, "defs": map[string]any{"main": map[string]any{
			"type": "record", "key": "any", "record": map[string]any{"type": "object", "required": []string{"x"},
				"properties": map[string]any{"x": map[string]any{"type": "string", "format": format}}},
		}}})
		require.NoError(t, err)
		require.NoError(t, schema(cat, b), format)
		valid := func(x string) error {
			b, err := json.Marshal(map[string]any{"$type": typ, "x": x})
			require.NoError(t, err)
			r, err := FromJSON(b)
			if err != nil {
				return err
			}
			return r.Validate(cat)
		}
		for _, v := range vectors(t, "syntax/"+file+"_syntax_valid.txt") {
			if !lenient[v] {
				require.NoError(t, valid(v), "%s %q", format, v)
			}
		}
		for _, v := range vectors(t, "syntax/"+file+"_syntax_invalid.txt") {
			require.Error(t, valid(v), "%s %q", format, v)
		}
	}
}

// TestVectorsDataModel reads and writes the fixtures of the data model.
func TestVectorsDataModel(t *testing.T) {
	t.Parallel()
	var fixtures []struct {
		JSON       json.RawMessage
		CBORBase64 string `json:"cbor_base64"`
		CID        string
	}
	readVectors(t, "data-model/data-model-fixtures.json", &fixtures)
	require.Len(t, fixtures, 3)
	for _, f := range fixtures {
		data, err := parseJSON(f.JSON)
		require.NoError(t, err)
		raw, err := atdata.MarshalCBOR(data)
		require.NoError(t, err)
		want, err := base64.RawStdEncoding.DecodeString(f.CBORBase64)
		require.NoError(t, err)
		require.Equal(t, want, raw)
		again, err := parse(want)
		require.NoError(t, err)
		require.Equal(t, data, again)
		c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(raw)
		require.NoError(t, err)
		require.Equal(t, f.CID, c.String())
	}
	var cases []struct {
		Note string
		JSON json.RawMessage
	}
	readVectors(t, "data-model/data-model-valid.json", &cases)
	for _, c := range cases {
		_, err := parseJSON(c.JSON)
		require.NoError(t, err, c.Note)
	}
	readVectors(t, "data-model/data-model-invalid.json", &cases)
	require.Len(t, cases, 12)
	for _, c := range cases {
		_, err := parseJSON(c.JSON)
		require.Error(t, err, c.Note)
	}
}

// TestVectorsLexicons reads lexicons that hold and some that do not, and validates records by the catalog.
func TestVectorsLexicons(t *testing.T) {
	t.Parallel()
	var files []struct {
		Name    string
		Lexicon json.RawMessage
	}
	readVectors(t, "lexicon/lexicon-valid.json", &files)
	for _, f := range files {
		require.NoError(t, schema(lexicon.NewBaseCatalog(), f.Lexicon), f.Name)
	}
	readVectors(t, "lexicon/lexicon-invalid.json", &files)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.Error(t, schema(lexicon.NewBaseCatalog(), f.Lexicon), f.Name)
	}
	cat := lexicon.NewBaseCatalog()
	require.NoError(t, cat.LoadDirectory("testdata/interop/lexicon/catalog"))
	var records []struct {
		Name string
		Data json.RawMessage
	}
	check := func(b []byte) error {
		r, err := FromJSON(b)
		if err != nil {
			return err
		}
		return r.Validate(cat)
	}
	readVectors(t, "lexicon/record-data-valid.json", &records)
	for _, r := range records {
		require.NoError(t, check(r.Data), r.Name)
	}
	readVectors(t, "lexicon/record-data-invalid.json", &records)
	require.Len(t, records, 50)
	for _, r := range records {
		require.Error(t, check(r.Data), r.Name)
	}
}
