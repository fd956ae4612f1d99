package identity

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	indigo "github.com/bluesky-social/indigo/atproto/identity"
	"github.com/stretchr/testify/require"
)

// FuzzDocument reads DID documents as the directory does. Whatever is made of one, what it says is either refused
// or in the one form that the rest of the server takes.
func FuzzDocument(f *testing.F) {
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	good, err := json.Marshal(docFor(f, did, newKey(f, true)))
	require.NoError(f, err)
	f.Add(good)
	for _, s := range []string{
		``, `{}`, `[]`, `null`, `{"id":"` + did + `"}`, `{"id":1}`,
		`{"id":"` + did + `","service":[{"id":"#tangled_knot","type":"TangledKnot","serviceEndpoint":"https://127.0.0.1:80@knot.example"}]}`,
		`{"id":"` + did + `","service":[{"id":"#tangled_knot","type":"TangledKnot","serviceEndpoint":{"a":"b"}}]}`,
		`{"id":"` + did + `","service":null,"verificationMethod":[{"id":"#atproto","type":"Multikey","publicKeyMultibase":"z"}],"alsoKnownAs":["at://","at://a.b"]}`,
	} {
		f.Add([]byte(s))
	}
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	f.Cleanup(srv.Close)
	base := &indigo.BaseDirectory{PLCURL: srv.URL, HTTPClient: http.Client{Transport: &documents{next: srv.Client().Transport}}, SkipHandleVerification: true}
	f.Fuzz(func(t *testing.T, doc []byte) {
		body = doc
		got, err := base.LookupDID(t.Context(), did)
		if err != nil {
			require.NotEqual(t, "Other", Reason(classify(err)), "%v", err)
			return
		}
		i := &Identity{DID: did, doc: got}
		if h, err := got.DeclaredHandle(); err == nil {
			i.Handle = h.String()
		}
		require.Equal(t, did, got.DID.String())
		if _, err := i.PublicKey(); err != nil {
			require.ErrorIs(t, err, ErrBadDocument)
		}
		for _, ask := range []func() (string, error){i.PDS, i.KnotEndpoint} {
			origin, err := ask()
			if err != nil {
				require.ErrorIs(t, err, ErrBadDocument)
				continue
			}
			u, err := url.Parse(origin)
			require.NoError(t, err)
			require.Equal(t, "https", u.Scheme)
			require.Nil(t, u.User)
			require.Equal(t, origin, u.Scheme+"://"+u.Host)
			require.Equal(t, strings.ToLower(origin), origin)
		}
	})
}
