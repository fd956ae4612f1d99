package store

import (
	"context"
	"fmt"

	"spindle/rbac"
)

// grants reads who a record puts on the allow-list, by the record's key.
func (t *tx) grants(author string) (map[string]string, error) {
	rows, err := t.query("SELECT rkey, did FROM grants WHERE author = ?", author)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string]string{}
	for rows.Next() {
		var rkey, did string
		if err := rows.Scan(&rkey, &did); err != nil {
			return nil, err
		}
		out[rkey] = did
	}
	return out, rows.Err()
}

// putMember takes over one record. Whom its former content named stays while another record names them.
func (t *tx) putMember(m Member) error {
	if m.Rkey == "" {
		m.Rkey = m.DID
	}
	if !m.Removed {
		if ok, err := t.mayGrant(m.Author); err != nil || !ok {
			return err
		}
	}
	var had string
	known, err := t.get("SELECT did FROM grants WHERE author = ? AND rkey = ?", []any{m.Author, m.Rkey}, &had)
	switch {
	case err != nil:
		return err
	case known && had == m.DID && !m.Removed:
		return nil
	case known:
		if err := t.endGrant(m.Author, m.Rkey, had); err != nil {
			return err
		}
	}
	if m.Removed {
		return nil
	}
	if err := t.exec1("INSERT INTO grants (author, rkey, did) VALUES (?, ?, ?)", m.Author, m.Rkey, m.DID); err != nil {
		return err
	}
	return t.setRole(m.DID, rbac.Member, byRecord, m.Author, true)
}

// mayGrant tells whether author's records count: only those of the spindle's owner and admins do. The empty author
// is the server itself.
func (t *tx) mayGrant(author string) (bool, error) {
	var one int
	ok, err := t.get("SELECT 1 FROM members WHERE did = ? AND role IN ('owner', 'admin') LIMIT 1", []any{author}, &one)
	return ok || author == "", err
}

func (t *tx) endGrant(author, rkey, did string) error {
	if err := t.exec1("DELETE FROM grants WHERE author = ? AND rkey = ?", author, rkey); err != nil {
		return err
	}
	var one int
	other, err := t.get("SELECT 1 FROM grants WHERE did = ? LIMIT 1", []any{did}, &one)
	if err != nil || other {
		return err
	}
	return t.setRole(did, rbac.Member, byRecord, "", false)
}

// replaceMembers makes author's records those of all.
func (t *tx) replaceMembers(author string, all []Member) error {
	have, err := t.grants(author)
	if err != nil {
		return err
	}
	for _, m := range all {
		m.Author = author
		if err := t.putMember(m); err != nil {
			return err
		}
		delete(have, m.Rkey)
	}
	for rkey, did := range have {
		if err := t.endGrant(author, rkey, did); err != nil {
			return err
		}
	}
	return nil
}

// endGrants takes away what rests on records of accounts that are no longer owner or admin.
func (t *tx) endGrants() error {
	rows, err := t.query(`SELECT DISTINCT author FROM grants WHERE author <> '' AND author NOT IN
		(SELECT did FROM members WHERE role IN ('owner', 'admin'))`)
	if err != nil {
		return err
	}
	var authors []string
	for rows.Next() {
		var a string
		if err := rows.Scan(&a); err != nil {
			_ = rows.Close()
			return err
		}
		authors = append(authors, a)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, a := range authors {
		if err := t.replaceMembers(a, nil); err != nil {
			return fmt.Errorf("members by %s: %w", a, err)
		}
	}
	return nil
}

// Granters lists the accounts whose records can put others on the allow-list: the spindle's owner and admins.
func (s *Store) Granters(ctx context.Context) ([]string, error) {
	rows, err := s.r.query(ctx, "SELECT DISTINCT did FROM members WHERE role IN ('owner', 'admin') ORDER BY did")
	return collect(rows, err, "read the owner and the admins", func(scan func(...any) error) (did string, err error) {
		return did, scan(&did)
	})
}

// Grants tells whom an author's records put on the allow-list, by the key of the record.
func (s *Store) Grants(ctx context.Context, author string) (map[string]string, error) {
	rows, err := s.r.query(ctx, "SELECT rkey, did FROM grants WHERE author = ?", author)
	list, err := collect(rows, err, "read the members by "+author, func(scan func(...any) error) (g [2]string, err error) {
		return g, scan(&g[0], &g[1])
	})
	out := map[string]string{}
	for _, g := range list {
		out[g[0]] = g[1]
	}
	return out, err
}
