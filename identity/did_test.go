package identity

import (
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/stretchr/testify/require"
)

func TestT09GoodDIDs(t *testing.T) {
	t.Parallel()
	for _, d := range []string{
		"did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:web:example.com", "did:web:spindle.harborlight.co.uk", "did:web:xn--bcher-kva.example.com",
		"did:web:a-b.example.org", "did:web:knot1.tangled.sh", "did:web:foo.github.io", "did:web:1.example.com",
	} {
		require.NoError(t, CheckDID(d, false), d)
		require.NoError(t, CheckDID(d, true), d)
	}
	require.NoError(t, CheckDID("did:web:spindle.test", true))
	require.ErrorIs(t, CheckDID("did:web:spindle.test", false), ErrBadDID)
}

func TestT09BadDIDs(t *testing.T) {
	t.Parallel()
	bad := []string{
		"", "did", "did:", "did:web", "did:web:", "did:plc:", "did:key:zDnaeabc", "did:example:abc", "DID:WEB:example.com", "did:WEB:example.com",
		"did:plc:EWVI7NXZYOUN6ZHXRHS64OIZ", "did:plc:ewvi7nxzyoun6zhxrhs64oi", "did:plc:ewvi7nxzyoun6zhxrhs64oizz", "did:plc:ewvi7nxzyoun6zhxrhs64oi1",
		"did:plc:ewvi7nxzyoun6zhxrhs64oiz#atproto", "did:plc:ewvi7nxzyoun6zhxrhs64oiz/x", " did:web:example.com", "did:web:example.com ",
		"did:web:example.com\n", "did:web:example.com\x00", "did:web:Example.com", "did:web:example.com.", "did:web:.example.com", "did:web:example..com",
		"did:web:example.com:8080", "did:web:example.com%3A8080", "did:web:example.com%3a443", "did:web:example.com:user:alice", "did:web:example.com/path",
		"did:web:example.com?x=1", "did:web:example.com#frag", "did:web:user@example.com", "did:web:user%40example.com", "did:web:ex%61mple.com",
		"did:web:example.com%2F..", "did:web:%65xample.com", "did:web:bücher.example.com", "did:web:example。com", "did:web:ｅxample.com",
		"did:web:localhost", "did:web:localhost%3A8080", "did:web:localhost.localdomain", "did:web:127.0.0.1", "did:web:127.1", "did:web:2130706433",
		"did:web:0x7f.0.0.1", "did:web:0x7f000001", "did:web:[::1]", "did:web:%5B::1%5D", "did:web:::1", "did:web:10.0.0.1", "did:web:169.254.169.254",
		"did:web:router.local", "did:web:db.internal", "did:web:x.arpa", "did:web:1.0.0.127.in-addr.arpa", "did:web:x.invalid", "did:web:x.localhost",
		"did:web:x.example", "did:web:x.onion", "did:web:x.alt", "did:web:x.test", "did:web:knot.lan", "did:web:knot.corp", "did:web:knot.home",
		"did:web:knot.docker", "did:web:com", "did:web:co.uk", "did:web:github.io", "did:web:metadata.google.internal", "did:web:kubernetes.default.svc",
		"did:web:-x.example.com", "did:web:x-.example.com", "did:web:x_y.example.com", "did:web:*.example.com", "did:web:example.com,evil.com",
		"did:web:example.com\\evil.com", "did:web:example.com;x", "did:web:example.c0m1", "did:web:example.1com", "did:web:" + strings.Repeat("a", 64) + ".com",
		"did:web:" + strings.Repeat("a.", 150) + "com", "did:web:" + strings.Repeat("a", 10_000) + ".com", "did:web:127.0.0.1.nip.io:80",
	}
	for _, d := range bad {
		require.ErrorIs(t, CheckDID(d, false), ErrBadDID, "%q", d)
		require.Less(t, len(CheckDID(d, false).Error()), 700)
	}
}

func FuzzCheckDID(f *testing.F) {
	for _, s := range []string{"did:web:example.com", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:web:EXAMPLE.com", "did:web:a%41.com"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckDID(s, true) != nil {
			return
		}
		d, err := syntax.ParseDID(s)
		if err != nil {
			t.Fatalf("%q passes here and not in the resolver", s)
		}
		if d.String() != strings.ToLower(s) || strings.ContainsAny(d.Identifier(), "%:/@?#[] ") {
			t.Fatalf("%q has another spelling", s)
		}
	})
}

func TestB126Endpoints(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://pds.example.com": "https://pds.example.com", "https://PDS.example.com/": "https://pds.example.com", "https://pds.example.com:8443": "https://pds.example.com:8443",
	} {
		got, err := checkEndpoint(in, false)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"", "http://pds.example.com", "https://", "https://u:p@pds.example.com", "https://pds.example.com/x", "https://pds.example.com?x",
		"https://pds.example.com?", "https://pds.example.com#x", "file:///etc/passwd", "//pds.example.com", "https:pds.example.com", "javascript:alert(1)", "https://a b/",
		"https://pds.example.com\n", "https://pds\t.example.com", "https://127.0.0.1:80@pds.example.com", "https://pds.example.com@127.0.0.1", "https://pds.example.com/../..",
		"https://pds.example.com#", "https://pds。example。com", "https://pds.example.com:99999", "https://pds.example.com:0", "https://pds.example.com:", "https://pds.example.com:x",
		"https://pds.example.com.", "https://[::1]", "https://pds%2eexample.com", "https://" + strings.Repeat("a", 3000)} {
		_, err := checkEndpoint(bad, false)
		require.ErrorIs(t, err, ErrBadDocument, "%q", bad)
	}
	_, err := checkEndpoint("http://pds.test", true)
	require.NoError(t, err)
}
