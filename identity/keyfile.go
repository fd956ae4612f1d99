package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const maxKeyFile = 16 << 10

// ErrKeyFile is what every refusal of a key file is. The text says how to mend it.
var ErrKeyFile = errors.New("identity: key file refused")

// LoadKeyFile reads an EC P-256 private key from a PEM file (SEC 1 "EC PRIVATE KEY" or PKCS 8 "PRIVATE KEY").
// A file that others than its owner may read or write is refused. The error is ErrKeyFile, and also
// fs.ErrNotExist if there is no such file; it never holds key material.
func LoadKeyFile(path string) (*ecdsa.PrivateKey, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w: make one with: spindle key generate '%s'", ErrKeyFile, err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	defer func() { _ = f.Close() }() // read only: closing can lose nothing
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrKeyFile, path)
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o, so others than its owner can use the key: run: chmod 600 '%s'", ErrKeyFile, path, perm, path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrKeyFile, path, err)
	}
	key, err := parseKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeyFile, path, err)
	}
	return key, nil
}

func parseKey(raw []byte) (*ecdsa.PrivateKey, error) {
	for {
		var b *pem.Block
		b, raw = pem.Decode(raw)
		if b == nil {
			return nil, errors.New("no EC private key in PEM form inside")
		}
		var (
			k   any
			err error
		)
		switch b.Type {
		case "EC PRIVATE KEY":
			k, err = x509.ParseECPrivateKey(b.Bytes)
		case "PRIVATE KEY":
			k, err = x509.ParsePKCS8PrivateKey(b.Bytes)
		default:
			continue // openssl puts "EC PARAMETERS" in front
		}
		if err != nil {
			return nil, errors.New("the private key inside cannot be parsed")
		}
		ec, ok := k.(*ecdsa.PrivateKey)
		if !ok || ec.Curve != elliptic.P256() {
			return nil, errors.New("the private key inside is not EC P-256 (prime256v1)")
		}
		return ec, nil
	}
}

// GenerateKeyFile makes a new EC P-256 key and writes it to path with mode 0600, in one step: the file is
// complete or not there. A file that exists is never overwritten; the error is then fs.ErrExist.
func GenerateKeyFile(path string) error {
	if err := generateKeyFile(path); err != nil {
		return fmt.Errorf("generate key file %s: %w", path, err)
	}
	return nil
}

func generateKeyFile(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".key-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // the link below keeps the content
	err = pem.Encode(tmp, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	// Link, unlike rename, fails if the name is taken.
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
