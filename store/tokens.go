package store

import (
	"context"
	"fmt"
	"time"
)

// UseToken notes that the token jti of iss was used; fresh is false when it was before. It is forgotten some
// time after exp, when its expiry alone refuses it.
func (s *Store) UseToken(ctx context.Context, iss, jti string, exp time.Time) (fresh bool, err error) {
	return value(ctx, s, "use a token", func(t *tx) (bool, error) { return t.useToken(iss, jti, exp) })
}

// tokenSlack keeps tokens beyond their expiry, for verifiers that allow a few seconds of clock difference.
const tokenSlack = 5 * time.Minute

func (t *tx) useToken(iss, jti string, exp time.Time) (bool, error) {
	if iss == "" || jti == "" || len(iss)+len(jti) > maxKey {
		return false, fmt.Errorf("%w: a token needs an issuer and an id of at most 1 KiB", ErrConflict)
	}
	// A bounded prune keeps the table at the size of what is valid without ever making one call slow.
	if _, err := t.exec("DELETE FROM tokens WHERE (iss, jti) IN (SELECT iss, jti FROM tokens WHERE expires < ? LIMIT 50)",
		micros(t.now.Add(-tokenSlack))); err != nil {
		return false, err
	}
	n, err := t.exec("INSERT INTO tokens (iss, jti, expires) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", iss, jti, micros(exp))
	return n == 1, err
}
