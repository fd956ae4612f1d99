package store

import (
	"context"
	"fmt"
	"time"
)

// SealedSecret is one secret as package secrets sealed it. It is an alias of a plain struct so that package
// secrets names the same type without importing this one.
type SealedSecret = struct {
	Repo, Owner string
	OwnerEpoch  int64
	Name        string
	// Version grows with each value of one name.
	Version    int64
	KeyID      string
	Nonce, Box []byte
	CreatedAt  time.Time
	CreatedBy  string
}

// OwnerEpoch tells who owns a repository now and how many owners it has had. ErrNotFound: it is not served here.
func (s *Store) OwnerEpoch(ctx context.Context, repo string) (owner string, epoch int64, err error) {
	ok, err := s.r.get(ctx, "SELECT owner, owner_epoch FROM repos WHERE did = ?", []any{repo}, &owner, &epoch)
	if err == nil && !ok {
		err = fmt.Errorf("store: repository %s: %w", repo, ErrNotFound)
	}
	return owner, epoch, err
}

// PutSecret stores x in place of an older version. ErrConflict: the repository has another owner epoch by
// now, or a version at least as new is stored.
func (s *Store) PutSecret(ctx context.Context, x SealedSecret) error {
	return s.write(ctx, "put a secret of "+x.Repo, func(t *tx) error {
		var owner string
		var epoch int64
		known, err := t.get("SELECT owner, owner_epoch FROM repos WHERE did = ?", []any{x.Repo}, &owner, &epoch)
		if err != nil {
			return err
		}
		if !known {
			return ErrNotFound
		}
		if owner != x.Owner || epoch != x.OwnerEpoch {
			return fmt.Errorf("%w: the repository has another owner", ErrConflict)
		}
		n, err := t.exec(`INSERT INTO secrets (repo, owner_epoch, name, owner, version, key_id, nonce, box, created_at, created_by)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (repo, owner_epoch, name) DO UPDATE SET owner = excluded.owner,
			version = excluded.version, key_id = excluded.key_id, nonce = excluded.nonce, box = excluded.box,
			created_at = excluded.created_at, created_by = excluded.created_by WHERE excluded.version > secrets.version`,
			x.Repo, x.OwnerEpoch, x.Name, x.Owner, x.Version, x.KeyID, x.Nonce, x.Box, micros(x.CreatedAt), x.CreatedBy)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: a newer value of this secret is stored", ErrConflict)
		}
		return t.audit(x.CreatedBy, "secret.put", x.Repo, x.Name)
	})
}

// DeleteSecret deletes a secret of the current owner epoch and tells whether there was one.
func (s *Store) DeleteSecret(ctx context.Context, repo, name, by string) (was bool, err error) {
	return value(ctx, s, "delete a secret of "+repo, func(t *tx) (bool, error) {
		n, err := t.exec("DELETE FROM secrets WHERE repo = ? AND name = ? AND owner_epoch = (SELECT owner_epoch FROM repos WHERE did = ?)",
			repo, name, repo)
		if err != nil || n == 0 {
			return false, err
		}
		return true, t.audit(by, "secret.delete", repo, name)
	})
}

// SecretsOf lists the sealed secrets of a repository's current owner epoch, by name. Those of former owners
// are not among them.
func (s *Store) SecretsOf(ctx context.Context, repo string) ([]SealedSecret, error) {
	return s.secrets(ctx, repo, "s.nonce, s.box")
}

// ListSecrets is SecretsOf without the sealed values.
func (s *Store) ListSecrets(ctx context.Context, repo string) ([]SealedSecret, error) {
	return s.secrets(ctx, repo, "NULL, NULL")
}

func (s *Store) secrets(ctx context.Context, repo, sealed string) ([]SealedSecret, error) {
	rows, err := s.r.query(ctx, `SELECT s.repo, s.owner, s.owner_epoch, s.name, s.version, s.key_id, `+sealed+`, s.created_at, s.created_by
		FROM secrets s JOIN repos r ON r.did = s.repo AND r.owner_epoch = s.owner_epoch AND r.owner = s.owner
		WHERE s.repo = ? ORDER BY s.name`, repo)
	return collect(rows, err, "read the secrets of "+repo, func(scan func(...any) error) (x SealedSecret, err error) {
		var at int64
		err = scan(&x.Repo, &x.Owner, &x.OwnerEpoch, &x.Name, &x.Version, &x.KeyID, &x.Nonce, &x.Box, &at, &x.CreatedBy)
		x.CreatedAt = fromMicros(at)
		return x, err
	})
}
