package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/pipeline"
)

const (
	repoA = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	repoB = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
	wren  = "did:plc:wrenaaaabbbbccccddddeeee"
	value = "canary-4711-canary"
)

// rows is a store in memory that counts how often values were asked for.
type rows struct {
	list  []Sealed
	epoch int64
	asked int
	down  error
}

func (r *rows) OwnerEpoch(context.Context, string) (string, int64, error) {
	return wren, r.epoch, r.down
}
func (r *rows) PutSecret(_ context.Context, s Sealed) error {
	r.list = append(r.list, s)
	return r.down
}
func (r *rows) ListSecrets(context.Context, string) ([]Sealed, error) { return r.list, r.down }
func (r *rows) SecretsOf(context.Context, string) ([]Sealed, error)   { r.asked++; return r.list, r.down }
func (r *rows) DeleteSecret(context.Context, string, string, string) (bool, error) {
	return false, r.down
}

func vault(t *testing.T) (*Vault, *rows) {
	t.Helper()
	s := &rows{epoch: 1}
	v, err := New(Config{KEKPath: filepath.Join(t.TempDir(), "keys", "secrets.key"), Store: s})
	require.NoError(t, err)
	return v, s
}

func TestT17SealIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	v, s := vault(t)
	require.NoError(t, v.Put(t.Context(), repoA, "TOKEN", value, wren))
	sealed := s.list[0]
	got, err := v.Run(t.Context(), repoA, pipeline.TrustBranch)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"TOKEN": value}, got)
	row, err := json.Marshal(sealed)
	require.NoError(t, err)
	for _, b := range [][]byte{row, sealed.Box, sealed.Nonce} {
		require.False(t, bytes.Contains(b, []byte("canary")), "the value is nowhere in the row")
	}
	for name, move := range map[string]func(*Sealed){
		"another repository": func(r *Sealed) { r.Repo = repoB },
		"another owner":      func(r *Sealed) { r.OwnerEpoch++ },
		"another name":       func(r *Sealed) { r.Name = "PUBLIC" },
		"an older version":   func(r *Sealed) { r.Version-- },
		"a shifted boundary": func(r *Sealed) { r.Repo, r.Name = r.Repo+"T", "OKEN" },
		"another key":        func(r *Sealed) { r.KeyID = strings.Repeat("0", len(r.KeyID)) },
		"no box":             func(r *Sealed) { r.Box = nil },
		"no nonce":           func(r *Sealed) { r.Nonce = nil },
		"cut":                func(r *Sealed) { r.Box = r.Box[:len(r.Box)-1] },
		"cut nonce":          func(r *Sealed) { r.Nonce = r.Nonce[:len(r.Nonce)-1] },
	} {
		r := sealed
		move(&r)
		_, err := v.key.open(r)
		require.ErrorIs(t, err, ErrSealed, name)
		require.NotContains(t, err.Error(), "canary", name)
	}
	for i := range sealed.Box {
		r := sealed
		r.Box = bytes.Clone(sealed.Box)
		r.Box[i] ^= 1
		_, err := v.key.open(r)
		require.ErrorIs(t, err, ErrSealed, "byte %d", i)
	}
	s.list = append(s.list, Sealed{Repo: repoA, Name: "DAMAGED", KeyID: sealed.KeyID})
	got, err = v.Run(t.Context(), repoA, pipeline.TrustBranch)
	require.ErrorIs(t, err, ErrSealed)
	require.Empty(t, got, "a run has all of its secrets or none")
}

func TestT12OnlyTrustedRunsGetSecrets(t *testing.T) {
	t.Parallel()
	v, s := vault(t)
	require.NoError(t, v.Put(t.Context(), repoA, "TOKEN", value, wren))
	for _, trust := range []pipeline.Trust{pipeline.TrustFork, pipeline.TrustApproved, pipeline.Trust(-1), pipeline.Trust(99)} {
		got, err := v.Run(t.Context(), repoA, trust)
		require.NoError(t, err)
		require.Empty(t, got, "%v", trust)
	}
	require.Zero(t, s.asked, "they are not even read")
}

func TestB121NamesAndValuesThatAreRefused(t *testing.T) {
	t.Parallel()
	v, s := vault(t)
	for _, name := range []string{"", "A=B", "1A", "a-b", "A B", "A\nB", "Ä", "A\x00", strings.Repeat("A", 51)} {
		require.ErrorIs(t, v.Put(t.Context(), repoA, name, value, wren), ErrName, "%q", name)
	}
	for val, want := range map[string]error{
		"": ErrTooShort, "1234567": ErrTooShort, strings.Repeat("x", 4097): ErrTooLong, "12345678\x00": ErrNUL,
	} {
		err := v.Put(t.Context(), repoA, "TOKEN", val, wren)
		require.ErrorIs(t, err, want)
	}
	require.Empty(t, s.list)
	for range maxSecrets {
		s.list = append(s.list, Sealed{Repo: repoA, Name: fmt.Sprint("S", len(s.list))})
	}
	require.ErrorIs(t, v.Put(t.Context(), repoA, "TOKEN", value, wren), ErrTooMany)
	require.NoError(t, v.Put(t.Context(), repoA, "S7", value, wren), "one that is there can be replaced")
	s.down = errors.New("down")
	require.NotContains(t, v.Put(t.Context(), repoA, "S7", value, wren).Error(), "canary")
}

func TestT17KeyFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "secrets.key")
	s := &rows{}
	_, err := New(Config{KEKPath: path, Store: s})
	require.NoError(t, err)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".key-*"))
	require.NoError(t, err)
	require.Empty(t, left, "no second copy stays behind")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = New(Config{KEKPath: path, Store: s})
	require.NoError(t, err)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "a key is never replaced")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o601} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := New(Config{KEKPath: path, Store: s})
		require.ErrorIs(t, err, ErrKeyFile, "%04o", mode)
		require.ErrorContains(t, err, "chmod 600")
	}
	for name, content := range map[string][]byte{"short": before[:31], "long": append(bytes.Clone(before), '\n'), "empty": {}} {
		p := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(p, content, 0o600))
		_, err := New(Config{KEKPath: p, Store: s})
		require.ErrorIs(t, err, ErrKeyFile, name)
		require.NotContains(t, err.Error(), string(before), name)
	}
	_, err = New(Config{KEKPath: t.TempDir(), Store: s})
	require.ErrorIs(t, err, ErrKeyFile, "a folder")
	_, err = New(Config{Store: s})
	require.ErrorIs(t, err, ErrKeyFile)
}

func TestT53ValuesPrintNowhere(t *testing.T) {
	t.Parallel()
	v := Value(value)
	var b strings.Builder
	log := slog.New(slog.NewJSONHandler(&b, nil))
	log.Info("x", "v", v, "in", map[string]any{"v": v}, "list", []Value{v}, "err", fmt.Errorf("bad %v %s %q %x %+v %#v", v, v, v, v, v, v))
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v, "list", []Value{v}, "in", struct{ V Value }{v})
	j, err := json.Marshal(map[string]any{"v": v, "in": struct{ V Value }{v}})
	require.NoError(t, err)
	b.Write(j)
	require.NotContains(t, b.String(), "canary")
	require.NotContains(t, b.String(), fmt.Sprintf("%x", value))
	require.Equal(t, value, string(v))
}
