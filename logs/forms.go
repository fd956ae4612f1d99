package logs

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strings"
)

// shortest is the least length of a form that is masked, in bytes. Shorter ones would hide ordinary words.
const shortest = 6

// shortestLine is the same for one line of a value that has several.
const shortestLine = 8

// forms lists the spellings of a secret that people print by accident: as it is, in base64 at each of its
// three alignments and as tools wrap it, hex, URL-, HTML-, JSON- and shell-escaped, and each line of a value with
// several.
func forms(value string) [][]byte {
	var out [][]byte
	add := func(s string) {
		if len(s) >= shortest {
			out = append(out, []byte(s))
		}
	}
	add(value)
	add(strings.TrimSpace(value))
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, l := range lines {
			if l = strings.TrimSpace(l); len(l) >= shortestLine {
				add(l)
			}
		}
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for phase := range 3 {
			add(base64At(enc, value, phase))
		}
	}
	for _, width := range []int{64, 76} { // openssl and PEM; base64 of coreutils and MIME
		for _, l := range wrapped(base64At(base64.RawStdEncoding, value, 0), width) {
			add(l)
		}
	}
	add(hex.EncodeToString([]byte(value)))
	add(strings.ToUpper(hex.EncodeToString([]byte(value))))
	query := url.QueryEscape(value)
	spaced := strings.ReplaceAll(query, "+", "%20") // as encodeURIComponent and most libraries write a space
	for _, escaped := range []string{query, spaced, strings.ReplaceAll(spaced, "%2F", "/"), url.PathEscape(value)} {
		add(escaped)
		add(lowerHex(escaped))
	}
	add(html.EscapeString(value))
	add(strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(html.EscapeString(value)))
	add(quoted(value, true))
	add(quoted(value, false))
	add(strings.ReplaceAll(value, "'", `'\''`))
	return out
}

// lowerHex is a percent-encoded s with the digits of its escapes in lower case, as some encoders write them.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// wrapped is s cut into lines of width, if it has more than one; a short rest is left out.
func wrapped(s string, width int) []string {
	if len(s) <= width {
		return nil
	}
	var out []string
	for len(s) >= shortestLine {
		n := min(width, len(s))
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// quoted is value as it stands inside a JSON string, with < > & escaped as Go does or plain as others do.
func quoted(value string, markup bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(markup)
	if err := e.Encode(value); err != nil {
		return "" // a string can always be encoded
	}
	s := strings.TrimSuffix(b.String(), "\n")
	return s[1 : len(s)-1]
}

// base64At is the part of value's base64 that does not depend on what stands before and after it, when it
// starts at a byte whose index is phase modulo 3.
func base64At(enc *base64.Encoding, value string, phase int) string {
	full := enc.EncodeToString(append(make([]byte, phase), value...))
	from := []int{0, 2, 3}[phase]
	to := (phase + len(value)) * 8 / 6
	if to <= from {
		return ""
	}
	return full[from:to]
}
