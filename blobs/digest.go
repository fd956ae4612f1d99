package blobs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrBadDigest refuses a name that is not "sha256:" and 64 lower-case hexadecimal digits.
	ErrBadDigest = errors.New("blobs: not a sha256 digest")
	// ErrNotFound says that there is no such blob.
	ErrNotFound = errors.New("blobs: no such blob")
	// ErrMismatch says that content is not what its digest says, or not as long.
	ErrMismatch = errors.New("blobs: the content does not have the digest")
	// ErrTooLarge refuses content beyond the caller's limit.
	ErrTooLarge = errors.New("blobs: the content is larger than allowed")
	// ErrFull says that there is no room and that what is stored is in use.
	ErrFull = errors.New("blobs: the store is full and everything in it is in use")
	// ErrInUse refuses to remove a blob that is held.
	ErrInUse = errors.New("blobs: the blob is in use")
	// ErrNoSpace says that the disk itself is full. It wraps the system's error.
	ErrNoSpace = errors.New("blobs: no space left on the disk")
)

// Digest names a blob: "sha256:" and 64 lower-case hexadecimal digits.
type Digest string

const algorithm = "sha256:"

// ParseDigest refuses whatever is not a Digest, with ErrBadDigest.
func ParseDigest(s string) (Digest, error) {
	hexes, ok := strings.CutPrefix(s, algorithm)
	if !ok || len(hexes) != 2*sha256.Size || strings.Trim(hexes, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: %.80q", ErrBadDigest, s)
	}
	return Digest(s), nil
}

func digestOf(sum []byte) Digest { return Digest(algorithm + hex.EncodeToString(sum)) }

func (d Digest) hex() string { return strings.TrimPrefix(string(d), algorithm) }
