package daemon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet/world"
)

// What the vault refuses is the caller's mistake and is told as such, without the value.
func TestUnfitSecretsAreRefusedByName(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	c := w.Client(w.Owner)
	for _, tt := range []struct{ name, key, value, want string }{
		{"too short to be masked", "TOKEN", "s3cr3t7", "at least 8 bytes"},
		{"too long", "TOKEN", strings.Repeat("s3cr3t7", 600), ""},
		{"NUL", "TOKEN", "s3cr3t7\x00s3cr3t7", ""},
		{"no identifier", "A=B", "s3cr3t7-s3cr3t7", ""},
		{"no name", "", "s3cr3t7-s3cr3t7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := c.PutSecret(t.Context(), r.DID.String(), tt.key, tt.value)
			var refused *world.CallError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, 400, refused.Status)
			require.Contains(t, refused.Message, tt.want)
			require.NotContains(t, err.Error(), "s3cr3t7")
		})
	}
}
