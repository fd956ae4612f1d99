package lexicons

import (
	"fmt"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// ticketCollection is where the threads of pull requests lie.
const ticketCollection = "org.tangled.track.ticket"

// TicketURI is the thread that the ticket field of an org.tangled.review.patch record names, where author
// is the DID in whose record repository the patch lies. Errors are ErrInvalid.
func TicketURI(author, ticket string) (syntax.ATURI, error) {
	if _, err := syntax.ParseRecordKey(ticket); err == nil {
		ticket = "at://" + author + "/" + ticketCollection + "/" + ticket
	}
	return recordURI(ticket, ticketCollection)
}

// declarationCollection is where accounts say which repositories are theirs.
const declarationCollection = "org.tangled.repo.declaration"

// DeclarationURI is the record that the owner and declaration fields of an org.tangled.repo.manifest name.
// A declaration in the record repository of anyone but the owner is refused. Errors are ErrInvalid.
func DeclarationURI(owner, declaration string) (syntax.ATURI, error) {
	if _, err := syntax.ParseRecordKey(declaration); err == nil {
		declaration = "at://" + owner + "/" + declarationCollection + "/" + declaration
	}
	uri, err := recordURI(declaration, declarationCollection)
	if err != nil {
		return "", err
	}
	if uri.Authority().String() != owner {
		return "", fmt.Errorf("%w: the declaration is not the owner's", ErrInvalid)
	}
	return uri, nil
}

// recordURI parses the at-uri of one record of a collection, with a DID for authority.
func recordURI(s, collection string) (syntax.ATURI, error) {
	uri, err := syntax.ParseATURI(s)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := uri.Authority().AsDID(); err != nil {
		return "", fmt.Errorf("%w: the authority is not a DID", ErrInvalid)
	}
	if uri.Collection().String() != collection || uri.RecordKey() == "" {
		return "", fmt.Errorf("%w: not a record of %s", ErrInvalid, collection)
	}
	return uri, nil
}

// PushEventSigned is what the signature of an org.tangled.git.pushEvent message covers: its DAG-CBOR
// without seq and sig, every other field kept, known here or not.
func PushEventSigned(raw []byte) ([]byte, error) {
	data, err := parse(raw)
	if err != nil {
		return nil, err
	}
	delete(data, "seq")
	delete(data, "sig")
	b, err := atdata.MarshalCBOR(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return b, nil
}
