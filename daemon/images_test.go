package daemon

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/blobs"
	"spindle/engines/images"
)

// TestImageBytes: layers are kept as blobs, and a blob store's refusals are said in the words of images.
func TestImageBytes(t *testing.T) {
	t.Parallel()
	disk, err := blobs.New(blobs.Config{Dir: t.TempDir(), MaxBytes: 10})
	require.NoError(t, err)
	b := ImageBytes{Disk: disk}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("layer")))
	require.False(t, b.Has(t.Context(), digest))
	_, err = b.Open(t.Context(), digest)
	require.ErrorIs(t, err, blobs.ErrNotFound)
	require.ErrorIs(t, b.Put(t.Context(), digest, 5, strings.NewReader("other")), images.ErrDamaged)
	require.ErrorIs(t, b.Put(t.Context(), digest, 5, strings.NewReader("layer and more")), images.ErrDamaged)
	require.NoError(t, b.Put(t.Context(), digest, 5, strings.NewReader("layer")))
	require.True(t, b.Has(t.Context(), digest))
	in, err := b.Open(t.Context(), digest)
	require.NoError(t, err)
	large := strings.Repeat("x", 6)
	require.ErrorIs(t, b.Put(t.Context(), fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(large))), 6, strings.NewReader(large)), images.ErrFull, "what is open stays")
	text, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "layer", string(text))
	require.NoError(t, in.Close())
}
