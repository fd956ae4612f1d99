package secrets

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"spindle/internal/clock"
	"spindle/pipeline"
)

// Bounds of names and values.
const (
	maxName = 50
	// MinValue is the shortest value taken: masking shorter text would garble logs and hide little.
	MinValue = 8
	MaxValue = 4096
	// maxSecrets bounds the set of one repository.
	maxSecrets = 200
)

// What the package refuses.
var (
	ErrName     = errors.New("secrets: a name is a shell identifier of 1 to 50 characters: letters, digits and _, not beginning with a digit")
	ErrTooShort = errors.New("secrets: a value needs at least 8 bytes, because a shorter one cannot be masked in logs")
	ErrTooLong  = errors.New("secrets: a value has at most 4096 bytes")
	ErrNUL      = errors.New("secrets: a value holds no NUL byte, because an environment cannot carry one")
	ErrTooMany  = errors.New("secrets: a repository has at most 200 secrets")
	// ErrSealed is a stored value that does not open: it was damaged, moved, or sealed with another key.
	ErrSealed = errors.New("secrets: a stored secret does not open")
	// ErrKeyFile is a key file that cannot be used; the error's text says why and what to do.
	ErrKeyFile = errors.New("secrets: the key file cannot be used")
)

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Sealed is a secret as it is stored. It is an alias of a plain struct so that the store names the same type
// without an import between the two.
type Sealed = struct {
	Repo, Owner string
	OwnerEpoch  int64
	Name        string
	Version     int64
	KeyID       string
	Nonce, Box  []byte
	CreatedAt   time.Time
	CreatedBy   string
}

// Store keeps sealed secrets. Only those of a repository's current owner epoch are ever listed.
type Store interface {
	OwnerEpoch(ctx context.Context, repo string) (owner string, epoch int64, err error)
	PutSecret(ctx context.Context, s Sealed) error
	ListSecrets(ctx context.Context, repo string) ([]Sealed, error)
	SecretsOf(ctx context.Context, repo string) ([]Sealed, error)
	DeleteSecret(ctx context.Context, repo, name, by string) (was bool, err error)
}

// Info is what may be shown of a secret.
type Info struct {
	Name      string
	CreatedAt time.Time
	CreatedBy string
}

// Config configures a Vault.
type Config struct {
	// KEKPath is the file of the key-encryption key, 32 bytes. It is generated with mode 0600 when it does not
	// exist; a file that others can read is refused. Keep it out of the database's folder and of its backups.
	KEKPath string
	// Store keeps the sealed values. Required.
	Store Store
	// Clock is where times come from; nil is the machine's clock.
	Clock clock.Clock
}

// Vault seals and hands out. It is safe for concurrent use. Make it with New.
type Vault struct {
	key   key
	store Store
	clock clock.Clock
}

// New loads or generates the key. ErrKeyFile says what is wrong with an existing one.
func New(c Config) (*Vault, error) {
	if c.Store == nil {
		return nil, errors.New("secrets: Store is nil")
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	k, err := loadKey(c.KEKPath)
	if err != nil {
		return nil, err
	}
	return &Vault{key: k, store: c.Store, clock: c.Clock}, nil
}

// Put seals value as the secret name of repo, set by the account by, in place of an older one. The caller has
// checked that by may do that. ErrName, ErrTooShort, ErrTooLong, ErrNUL and ErrTooMany refuse it.
func (v *Vault) Put(ctx context.Context, repo, name, value, by string) error {
	switch {
	case len(name) > maxName || !namePattern.MatchString(name):
		return ErrName
	case len(value) < MinValue:
		return ErrTooShort
	case len(value) > MaxValue:
		return ErrTooLong
	case strings.ContainsRune(value, 0):
		return ErrNUL
	}
	owner, epoch, err := v.store.OwnerEpoch(ctx, repo)
	if err != nil {
		return fmt.Errorf("secrets: find the owner of %s: %w", repo, err)
	}
	have, err := v.store.ListSecrets(ctx, repo)
	if err != nil {
		return fmt.Errorf("secrets: list those of %s: %w", repo, err)
	}
	at := v.clock.Now().UTC()
	row := Sealed{Repo: repo, Owner: owner, OwnerEpoch: epoch, Name: name, Version: at.UnixMicro(), CreatedAt: at, CreatedBy: by}
	i := slices.IndexFunc(have, func(h Sealed) bool { return h.Name == name })
	if i < 0 && len(have) >= maxSecrets {
		return ErrTooMany
	}
	// Versions grow even when the clock was set back.
	if i >= 0 && row.Version <= have[i].Version {
		row.Version = have[i].Version + 1
	}
	if err := v.key.seal(&row, Value(value)); err != nil {
		return fmt.Errorf("secrets: seal %s of %s: %w", name, repo, err)
	}
	if err := v.store.PutSecret(ctx, row); err != nil {
		return fmt.Errorf("secrets: store %s of %s: %w", name, repo, err)
	}
	return nil
}

// List tells which secrets the present owner of repo has set, by name.
func (v *Vault) List(ctx context.Context, repo string) ([]Info, error) {
	rows, err := v.store.ListSecrets(ctx, repo)
	if err != nil {
		return nil, fmt.Errorf("secrets: list those of %s: %w", repo, err)
	}
	out := make([]Info, len(rows))
	for i, r := range rows {
		out[i] = Info{Name: r.Name, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy}
	}
	return out, nil
}

// Delete removes the secret name of repo for the account by and tells whether there was one.
func (v *Vault) Delete(ctx context.Context, repo, name, by string) (was bool, err error) {
	if len(name) > maxName || !namePattern.MatchString(name) {
		return false, ErrName
	}
	if was, err = v.store.DeleteSecret(ctx, repo, name, by); err != nil {
		return false, fmt.Errorf("secrets: delete %s of %s: %w", name, repo, err)
	}
	return was, nil
}

// Run is the set for a run in repo at trust. A trust that may not have secrets gets an empty set, without the
// store being asked. One value that does not open fails the whole set: a run with half its secrets is worse.
func (v *Vault) Run(ctx context.Context, repo string, trust pipeline.Trust) (map[string]string, error) {
	if !trust.Secrets() {
		return map[string]string{}, nil
	}
	rows, err := v.store.SecretsOf(ctx, repo)
	if err != nil {
		return nil, fmt.Errorf("secrets: read those of %s: %w", repo, err)
	}
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		clear, err := v.key.open(r)
		if err != nil {
			return nil, err
		}
		out[r.Name] = string(clear)
	}
	return out, nil
}
