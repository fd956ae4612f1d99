package logs

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// masked is what a masker makes of parts given one after the other.
func masked(secrets []string, parts ...string) string {
	m := masker{p: newPatterns(secrets)}
	var out []byte
	for _, p := range parts {
		out = m.feed(out, []byte(p))
	}
	return string(m.flush(out))
}

const pem = "-----BEGIN KEY-----\nMIIBVQIBADANBgkqhkiG9w0BAQEF\r\nshort\nAASCAT8wggE7AgEAAkEA1234\n-----END KEY-----\n"

func TestT15Forms(t *testing.T) {
	t.Parallel()
	const secret = `p@ss "w'rd"/<x>&1+2=é`
	long := strings.Repeat("0123456789abcdef!", 12)
	for name, tc := range map[string]struct{ secret, text, want string }{
		"as it is":       {secret, "a " + secret + " b", "a *** b"},
		"hex":            {secret, hex.EncodeToString([]byte(secret)), "***"},
		"upper hex":      {secret, strings.ToUpper(hex.EncodeToString([]byte(secret))), "***"},
		"query":          {secret, "?q=" + url.QueryEscape(secret), "?q=***"},
		"path":           {secret, "/" + url.PathEscape(secret), "/***"},
		"encodeURI":      {secret, "?q=p%40ss%20%22w%27rd%22%2F%3Cx%3E%261%2B2%3D%C3%A9", "?q=***"},
		"Python quote":   {secret, "?q=p%40ss%20%22w%27rd%22/%3Cx%3E%261%2B2%3D%C3%A9", "?q=***"},
		"lower escapes":  {secret, "?q=p%40ss+%22w%27rd%22%2f%3cx%3e%261%2b2%3d%c3%a9", "?q=***"},
		"HTML of Python": {secret, "<p>p@ss &quot;w&#x27;rd&quot;/&lt;x&gt;&amp;1+2=é</p>", "<p>***</p>"},
		"HTML of Go":     {secret, "<p>p@ss &#34;w&#39;rd&#34;/&lt;x&gt;&amp;1+2=é</p>", "<p>***</p>"},
		"JSON of Go":     {secret, marshal(secret), `"***"`},
		"JSON of others": {secret, `"` + strings.ReplaceAll(secret, `"`, `\"`) + `"`, `"***"`},
		"JSON, quoted":   {`"quoted"`, `{"a":"\"quoted\""}`, `{"a":"***"}`},
		"shell":          {secret, `'` + strings.ReplaceAll(secret, `'`, `'\''`) + `'`, `'***'`},
		"trimmed":        {"  hunter22\n", "x=hunter22;", "x=***;"},
		"several lines":  {pem, "key:\n" + pem + "end", "key:\n***end"},
		"one line of it": {pem, "log MIIBVQIBADANBgkqhkiG9w0BAQEF short", "log *** short"},
		"lines, CRLF":    {pem, strings.ReplaceAll(pem, "\n", "\r\n"), "***\r\n***\r\r\nshort\r\n***\r\n***\r\n"},
		"beside another": {"hunter22", "hunter22hunter22", "******"},
		"overlapping":    {"abcabcabc", "xabcabcabcabcx", "x***x"},
		"almost":         {"hunter22", "hunter2 hunter23", "hunter2 hunter23"},
		"empty":          {"", "abc", "abc"},
		"short":          {"abcde", "abcde", "abcde"},
		"short in words": {"on", "on and on", "on and on"},
		"least":          {"abcdef", "xabcdefx", "x***x"},
		"base64 -w 76":   {long, wrap(base64.StdEncoding.EncodeToString([]byte(long+"\n")), 76), ""},
		"openssl base64": {long, wrap(base64.StdEncoding.EncodeToString([]byte(long+"\n")), 64), ""},
	} {
		got := masked([]string{tc.secret}, tc.text)
		if tc.want != "" {
			require.Equal(t, tc.want, got, name)
			continue
		}
		require.Less(t, len(got), 60, "%s: %s", name, got)
	}
	for name, enc := range map[string]*base64.Encoding{
		"std": base64.StdEncoding, "url": base64.URLEncoding, "raw std": base64.RawStdEncoding, "raw url": base64.RawURLEncoding,
	} {
		for before := range 5 {
			for after := range 5 {
				in := enc.EncodeToString([]byte(strings.Repeat("u", before) + secret + strings.Repeat("v", after)))
				got := masked([]string{secret}, in)
				// What stays is what the bytes before and after the secret have a part in.
				require.Contains(t, got, mark, "%s %d %d", name, before, after)
				require.LessOrEqual(t, len(got)-len(mark), (before+2)/3*4+(after+2)/3*4+4, "%s %d %d: %s", name, before, after, got)
			}
		}
	}
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func wrap(s string, n int) string {
	var b strings.Builder
	for len(s) > n {
		b.WriteString(s[:n] + "\n")
		s = s[n:]
	}
	return b.String() + s + "\n"
}

// However a stream is cut, and however secrets lie in each other, the same is shown.
func TestT15CutsDoNotMatter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		secrets    []string
		text, want string
	}{
		"two writes":             {[]string{"hunter22"}, "a hunter22 b", "a *** b"},
		"over lines":             {[]string{"first-line\nsecond-line"}, "x\nfirst-line\nsecond-line\ny", "x\n***\ny"},
		"prefix of another":      {[]string{"hunter", "hunter22"}, "hunter hunter2 hunter22 hunter", "*** ***2 *** ***"},
		"end of another":         {[]string{"hunter22", "ter22!!"}, "hunter22!!x", "***x"},
		"inside another":         {[]string{"abcdefghijkl", "defghi"}, "abcdefghijk abcdefghijkl", "abc***jk ***"},
		"a begun one goes wrong": {[]string{"aaaaaaaab", "aaaaac"}, "aaaaaaaaaac", "aaaaa***"},
		"itself again":           {[]string{"ababab"}, "abababababab", "***"},
		"begun at the end":       {[]string{"hunter22"}, "x hunter2", "x hunter2"},
	} {
		require.Equal(t, tc.want, masked(tc.secrets, tc.text), name)
		for cut := range tc.text {
			require.Equal(t, tc.want, masked(tc.secrets, tc.text[:cut], tc.text[cut:]), "%s cut at %d", name, cut)
		}
		require.Equal(t, tc.want, masked(tc.secrets, strings.Split(tc.text, "")...), "%s byte by byte", name)
	}
}

// reference does what masker does, the plain way.
func reference(p patterns, text []byte) string {
	var hits []span
	for _, same := range p.byKey {
		for _, pat := range same {
			for i := range text {
				if bytes.HasPrefix(text[i:], pat) {
					hits = append(hits, span{i, i + len(pat)})
				}
			}
		}
	}
	slices.SortFunc(hits, func(a, b span) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, h := range hits {
		if h.from >= at {
			out = append(append(out, text[at:h.from]...), mark...)
		}
		at = max(at, h.to)
	}
	return string(append(out, text[at:]...))
}

func TestT15AgainstThePlainWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[ab]{6,9}|[a-c]{6,14}|[ab\n]{8,20}`), 1, 4).Draw(t, "secrets")
		parts := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[abc\n]{0,12}`), rapid.SampledFrom(secrets)), 0, 12).Draw(t, "parts")
		want := reference(newPatterns(secrets), []byte(strings.Join(parts, "")))
		if got := masked(secrets, parts...); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// What is withheld stays below the longest form, also when places never cease to overlap.
func TestMaskerWithholdsLittle(t *testing.T) {
	t.Parallel()
	m := masker{p: newPatterns([]string{strings.Repeat("a", 40), strings.Repeat("ab", 30)})}
	chunk := bytes.Repeat([]byte("a"), 1000)
	var out []byte
	for range 200 {
		out = m.feed(out, chunk)
		require.Less(t, len(m.held), m.p.longest)
	}
	require.Equal(t, mark, string(m.flush(out)))
}

func TestT15NothingOfASecretInTheFile(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	w := create(t, l, "hunter22", pem)
	require.NoError(t, w.StepStart(0, "name hunter22", "echo hunter22", "user"))
	write(t, w, 0, "hun", "ter22\n", "-----BEGIN", " KEY-----\nMIIBVQIBADANBgkqhkiG9w0BAQEF\r\nsh", "ort\nAASCAT8wggE7AgEAAkEA1234\n-----END KEY-----\n")
	require.NoError(t, w.System(0, "/bin/hunter22: not found\n"))
	require.NoError(t, w.StepEnd(0, "failed", 1, "hunter22 failed"))
	require.NoError(t, w.Close())
	require.Equal(t, "***\n***\n/bin/***: not found\n", text(t, l))
	for _, s := range []string{"hunter", "MIIB", "AASC", "BEGIN"} {
		require.NotContains(t, raw(t, l), s)
	}
}

func TestT15MaskAddedLater(t *testing.T) {
	t.Parallel()
	l := open(t, Limits{})
	given := []string{"hunter22"}
	w, err := l.Create(ref, given)
	require.NoError(t, err)
	given[0] = "changed by the caller"
	o := w.Stream(0, "stdout")
	for _, s := range []string{"token-1234 ", "hunter2"} {
		_, err := io.WriteString(o, s)
		require.NoError(t, err)
	}
	w.AddMask("token-1234")
	_, err = io.WriteString(o, "2 tok")
	require.NoError(t, err)
	_, err = io.WriteString(o, "en-1234\n")
	require.NoError(t, err)
	require.NoError(t, o.Close())
	write(t, w, 0, "hunter22 token-1234\n")
	require.NoError(t, w.Close())
	require.Equal(t, "token-1234 *** ***\n*** ***\n", text(t, l))
}

// FuzzMask writes text that holds the secret in pieces that the fuzzer chooses: neither the secret nor a form
// of it is in the file, nor is any part of a piece lost that holds nothing of it.
func FuzzMask(f *testing.F) {
	f.Add("hunter22", "a ", " b\n", []byte{3})
	f.Add("hunter22", "hunter2", "2\n", []byte{1, 1, 1, 1})
	f.Add(pem, "\n", "MIIB", []byte{20, 7})
	f.Add("aaaaaaaa", "aaa", "aaa", []byte{2})
	f.Add("a\"b'c<d>&\\e", "\xff", "\r\r", []byte{5})
	f.Add("日本語のひみつ", "日本", "語", []byte{1})
	f.Fuzz(func(t *testing.T, secret, before, after string, cuts []byte) {
		// The mark itself must not be a part of the secret, or masking would write it.
		if len(secret) < shortestLine || len(secret) > 4<<10 || strings.Contains(secret, "*") || len(before)+len(after) > 64<<10 {
			return
		}
		p := newPatterns([]string{secret})
		stream := before + secret + after + base64.StdEncoding.EncodeToString([]byte(before+secret)) + secret + hex.EncodeToString([]byte(secret))
		m := masker{p: p}
		var out []byte
		rest := []byte(stream)
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)])+1)
			}
			out = m.feed(out, rest[:n])
			if len(m.held) >= p.longest {
				t.Fatalf("%d bytes are held, the longest form has %d", len(m.held), p.longest)
			}
			rest = rest[n:]
		}
		out = m.flush(out)
		if want := reference(p, []byte(stream)); string(out) != want {
			t.Fatalf("got %q, want %q", out, want)
		}
		if bytes.Contains(out, []byte(secret)) {
			t.Fatalf("the secret %q is shown: %q", secret, out)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	var in bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&in, "%04d ok   spindle/some/package  0.%03ds coverage: 81.3%% of statements\n", i, i)
	}
	for _, n := range []int{0, 1, 30, 300} {
		var secrets []string
		r := rand.New(rand.NewPCG(1, 2))
		for range n {
			s := make([]byte, 40)
			for j := range s {
				s[j] = byte('a' + r.IntN(26))
			}
			secrets = append(secrets, string(s))
		}
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			p := newPatterns(secrets)
			b.SetBytes(int64(in.Len()))
			var out []byte
			for b.Loop() {
				m := masker{p: p}
				out = m.feed(out[:0], in.Bytes())
				out = m.flush(out)
			}
		})
	}
}
