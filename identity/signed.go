package identity

import (
	"context"
	"errors"
	"fmt"
)

// VerifySignature checks that message was signed by did's #atproto key, with low-S as the AT Protocol wants it
// (https://atproto.com/specs/cryptography). A signature that fails may be by a newer key: the document is then
// fetched once more, as often as Purge allows. Errors: ErrSignature, and those of Lookup.
func (d *Directory) VerifySignature(ctx context.Context, did string, message, signature []byte) error {
	check := func() error {
		id, err := d.Lookup(ctx, did)
		if err != nil {
			return err
		}
		key, err := id.PublicKey()
		if err != nil {
			return err
		}
		if key.HashAndVerify(message, signature) != nil {
			return fmt.Errorf("%w: a message of %s", ErrSignature, did)
		}
		return nil
	}
	err := check()
	if errors.Is(err, ErrSignature) && d.Purge(ctx, did) {
		err = check()
	}
	return err
}
