package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const keySize = 32

// key is the key-encryption key.
type key struct {
	id   string // the first 8 bytes of the key's SHA-256 in hex; tells keys apart and nothing else
	aead cipher.AEAD
}

func newKey(b []byte) (key, error) {
	aead, err := gcm(b)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(append([]byte("spindle secrets key id\x00"), b...))
	return key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

func gcm(b []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(b)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal fills KeyID, Nonce and Box of s. The value is sealed with a fresh data key and that one with the
// key-encryption key, so that the latter can be changed without touching values. Box is the sealed data
// key followed by the sealed value; Nonce is the nonce of each, in that order.
func (k key) seal(s *Sealed, v Value) error {
	s.KeyID = k.id
	dek := make([]byte, keySize)
	nonces := make([]byte, 2*k.aead.NonceSize())
	// crypto/rand.Read never fails on the platforms that Go supports (it ends the process instead).
	_, _ = rand.Read(dek)
	_, _ = rand.Read(nonces)
	inner, err := gcm(dek)
	if err != nil {
		return err
	}
	n := k.aead.NonceSize()
	bound := binding(*s)
	s.Nonce = nonces
	s.Box = inner.Seal(k.aead.Seal(nil, nonces[:n], dek, bound), nonces[n:], []byte(v), bound)
	return nil
}

// open is the value in s, if s is where it was sealed for.
func (k key) open(s Sealed) (Value, error) {
	fail := func(why string) (Value, error) {
		return "", fmt.Errorf("%w: %s of %s: %s; set it again, or restore the key file it was sealed with", ErrSealed, s.Name, s.Repo, why)
	}
	if s.KeyID != k.id {
		return fail("it was sealed with key " + s.KeyID + ", this spindle has " + k.id)
	}
	n, wrapped := k.aead.NonceSize(), keySize+k.aead.Overhead()
	if len(s.Nonce) != 2*n || len(s.Box) < wrapped {
		return fail("it is cut off")
	}
	bound := binding(s)
	dek, err := k.aead.Open(nil, s.Nonce[:n], s.Box[:wrapped], bound)
	if err != nil {
		return fail("it was changed or moved")
	}
	inner, err := gcm(dek)
	if err != nil {
		return fail("its data key is none")
	}
	v, err := inner.Open(nil, s.Nonce[n:], s.Box[wrapped:], bound)
	if err != nil {
		return fail("it was changed or moved")
	}
	return Value(v), nil
}

// binding is what a seal is bound to. Every field carries its length, so that no two places read the same.
func binding(s Sealed) []byte {
	b := []byte("spindle secret v1")
	for _, f := range []string{s.Repo, s.Name, s.KeyID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(s.OwnerEpoch))
	return binary.BigEndian.AppendUint64(b, uint64(s.Version))
}

// loadKey reads the key file, or makes it.
func loadKey(path string) (key, error) {
	if path == "" {
		return key{}, fmt.Errorf("%w: no path is configured", ErrKeyFile)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return key{}, fmt.Errorf("%w: make %s: %w", ErrKeyFile, path, err)
		}
		f, err = os.Open(path)
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return key{}, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	if !st.Mode().IsRegular() {
		return key{}, fmt.Errorf("%w: %s is not a regular file", ErrKeyFile, path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return key{}, fmt.Errorf("%w: %s has mode %04o and can be read by others; run: chmod 600 %s, and consider the secrets known to whoever read it",
			ErrKeyFile, path, st.Mode().Perm(), path)
	}
	b, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err != nil {
		return key{}, fmt.Errorf("%w: read %s: %w", ErrKeyFile, path, err)
	}
	if len(b) != keySize {
		return key{}, fmt.Errorf("%w: %s does not hold %d bytes; restore it from a backup (a new key opens none of the stored secrets)", ErrKeyFile, path, keySize)
	}
	return newKey(b)
}

// makeKey writes a fresh key. It appears under its name only once it is complete and on disk, and never in
// place of one that is there.
func makeKey(path string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	b := make([]byte, keySize)
	_, _ = rand.Read(b)
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
