package store

import (
	"context"
	"fmt"
	"time"

	"spindle/rbac"
)

// active is the status of an account that may act.
const active = "active"

// Account is what the host of an account says of it.
type Account struct {
	DID string
	// Inactive is why it is not active, one of rbac.Inactive, or empty for an account that is.
	Inactive rbac.Role
	// CheckedAt is when its host was asked; an older answer never replaces a newer one.
	CheckedAt time.Time
}

// putAccount stores what a host says of an account and makes the policy follow: an account that is not active
// may do nothing, and what it owns is paused. Nothing of it is deleted.
func (t *tx) putAccount(a Account) error {
	status := active
	if a.Inactive != "" {
		status = string(a.Inactive)
	}
	had := active
	var checked int64
	known, err := t.get("SELECT status, checked_at FROM accounts WHERE did = ?", []any{a.DID}, &had, &checked)
	if err != nil {
		return err
	}
	// As with bindings: the later answer counts, unless the clock was set back.
	if known && micros(a.CheckedAt) < checked && checked <= micros(t.now) {
		return nil
	}
	if err := t.exec1(`INSERT INTO accounts (did, status, checked_at) VALUES (?, ?, ?)
		ON CONFLICT (did) DO UPDATE SET status = excluded.status, checked_at = excluded.checked_at`, a.DID, status, micros(a.CheckedAt)); err != nil {
		return err
	}
	if had == status {
		return nil
	}
	t.rings = true
	for _, why := range rbac.Inactive() {
		r := rbac.Grant(a.DID, why, rbac.Spindle)
		change := t.revoke
		if why == a.Inactive {
			change = t.grant
		}
		if err := change(r); err != nil {
			return err
		}
	}
	return t.audit("spindle", "account.changed", a.DID, had+" -> "+status)
}

// accountRules are the policy rows that follow from the accounts that are not active.
func (t *tx) accountRules() ([]rbac.Rule, error) {
	rows, err := t.query("SELECT 0, did, status, 'spindle' FROM accounts WHERE status <> 'active'")
	if err != nil {
		return nil, err
	}
	_, rules, err := scanRules(rows)
	return rules, err
}

// Account is what was last heard of an account; false for one that was never asked about.
func (s *Store) Account(ctx context.Context, did string) (Account, bool, error) {
	a := Account{DID: did}
	var status string
	var at int64
	ok, err := s.r.get(ctx, "SELECT status, checked_at FROM accounts WHERE did = ?", []any{did}, &status, &at)
	if err != nil || !ok {
		return Account{}, false, err
	}
	if status != active {
		a.Inactive = rbac.Role(status)
	}
	a.CheckedAt = fromMicros(at)
	return a, true, nil
}

// Paused lists the accounts that are not active, by DID, for the operator.
func (s *Store) Paused(ctx context.Context) ([]Account, error) {
	rows, err := s.r.query(ctx, "SELECT did, status, checked_at FROM accounts WHERE status <> 'active' ORDER BY did")
	return collect(rows, err, "read the accounts that are not active", func(scan func(...any) error) (a Account, err error) {
		var status string
		var at int64
		err = scan(&a.DID, &status, &at)
		a.Inactive, a.CheckedAt = rbac.Role(status), fromMicros(at)
		return a, err
	})
}

// goneSentence says why nothing starts for a repository that is not served.
func goneSentence(repo, reason string) string {
	if reason != "" {
		return fmt.Sprintf("repository %s is not served here any more: %s; once that is mended, a push or a change of its records brings it back", repo, reason)
	}
	return "repository " + repo + " does not name this spindle; its owner can choose this spindle in the repository's settings"
}
