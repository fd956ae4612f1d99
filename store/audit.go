package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Audit appends a row to the audit trail; Seq and At are given by the store.
func (s *Store) Audit(ctx context.Context, r AuditRow) error {
	return s.write(ctx, "audit "+r.Action, func(t *tx) error { return t.audit(r.Actor, r.Action, r.Object, r.Detail) })
}

func (t *tx) audit(actor, action, object, detail string) error {
	r := AuditRow{At: t.now, Actor: clip(actor), Action: clip(action), Object: clip(object), Detail: clip(detail)}
	var before []byte
	if _, err := t.get("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1", nil, &r.Seq, &before); err != nil {
		return err
	}
	r.Seq++
	return t.exec1("INSERT INTO audit (seq, at, actor, action, object, detail, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
		r.Seq, micros(r.At), r.Actor, r.Action, r.Object, r.Detail, r.hash(t.s.c.AuditKey, before))
}

// hash chains r to the row before it. Every field carries its length, so that no two rows read the same.
func (r AuditRow) hash(key, before []byte) []byte {
	h := hmac.New(sha256.New, key)
	var n [8]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	num := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	put(before)
	num(r.Seq)
	num(micros(r.At))
	for _, s := range []string{r.Actor, r.Action, r.Object, r.Detail} {
		put([]byte(s))
	}
	return h.Sum(nil)
}

// AuditTail lists the newest rows, newest first.
func (s *Store) AuditTail(ctx context.Context, limit int) ([]AuditRow, error) {
	rows, err := s.r.query(ctx, "SELECT seq, at, actor, action, object, detail FROM audit ORDER BY seq DESC LIMIT ?", limit)
	return collect(rows, err, "read the audit trail", func(scan func(...any) error) (r AuditRow, err error) {
		var at int64
		err = scan(&r.Seq, &at, &r.Actor, &r.Action, &r.Object, &r.Detail)
		r.At = fromMicros(at)
		return r, err
	})
}

// AuditVerify walks the whole chain; ErrCorrupt names the first row that does not follow from the one before.
func (s *Store) AuditVerify(ctx context.Context) error {
	rows, err := s.r.query(ctx, "SELECT seq, at, actor, action, object, detail, hash FROM audit ORDER BY seq")
	if err != nil {
		return fmt.Errorf("store: read the audit trail: %w", err)
	}
	return verify(rows, s.c.AuditKey)
}

func (t *tx) auditVerify() error {
	rows, err := t.query("SELECT seq, at, actor, action, object, detail, hash FROM audit ORDER BY seq")
	if err != nil {
		return err
	}
	return verify(rows, t.s.c.AuditKey)
}

func verify(rows scanner, key []byte) error {
	defer func() { _ = rows.Close() }()
	var before []byte
	for want := int64(1); rows.Next(); want++ {
		var r AuditRow
		var at int64
		var hash []byte
		if err := rows.Scan(&r.Seq, &at, &r.Actor, &r.Action, &r.Object, &r.Detail, &hash); err != nil {
			return err
		}
		r.At = fromMicros(at)
		if r.Seq != want || !bytes.Equal(hash, r.hash(key, before)) {
			return fmt.Errorf("%w: row %d of the audit trail does not follow from the one before it (or the audit key is another)", ErrCorrupt, want)
		}
		before = hash
	}
	return rows.Err()
}
