package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Fingerprint is a digest, in hex, of everything that a plan decides: names, specs, what is skipped, what is invalid
// and why, what does not match. The same Input gives the same one, on every machine.
func (p Plan) Fingerprint() (string, error) {
	type one struct {
		Name, Path, Digest, Skip string
		Spec                     *Spec
		Diagnostics              []Diagnostic
	}
	var all []one
	for _, w := range p.Workflows {
		all = append(all, one{w.Name, w.Path, w.Digest, w.Skip, w.Spec, w.Diagnostics})
	}
	return digest([]any{all, p.NotMatched, p.Diagnostics, p.InputErrors})
}

// Fingerprint is a digest, in hex, of what would run. Two specs with the same one do the same.
func (s *Spec) Fingerprint() (string, error) { return digest(s) }

func digest(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
