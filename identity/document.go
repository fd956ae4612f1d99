package identity

import (
	"fmt"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	indigo "github.com/bluesky-social/indigo/atproto/identity"
)

// Ids and types of the services that a DID document of this network names.
const (
	KnotService    = "tangled_knot"    // the knot that hosts a repo, in the repo DID's document
	KnotType       = "TangledKnot"     // its type
	SpindleService = "tangled_spindle" // this spindle, in our own document
	SpindleType    = "TangledSpindle"  // its type

	olderKnotService = "knot"
	pdsService       = "atproto_pds"
)

// Identity is what a DID document says, as far as we use it.
type Identity struct {
	// DID is the identity itself.
	DID string
	// Handle is the name that the document claims, "" if it claims none. It is not verified: show it
	// beside the DID, or ask Directory.Handle.
	Handle string

	doc *indigo.Identity
	dev bool
}

// Service is a service entry of a DID document.
type Service struct {
	Type string // as the document has it
	URL  string // its origin: scheme, host and port
}

// PublicKey is the DID's #atproto key, which signs its repo and its service tokens.
func (i *Identity) PublicKey() (atcrypto.PublicKey, error) {
	k, err := i.doc.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: key of %s: %w", ErrBadDocument, i.DID, err)
	}
	return k, nil
}

// Service is the entry whose id has the fragment id (without '#'). The error is ErrBadDocument if there is
// none or if its endpoint is not a plain origin.
func (i *Identity) Service(id string) (Service, error) {
	s, ok := i.doc.Services[id]
	if !ok {
		return Service{}, fmt.Errorf("%w: %s names no service #%s", ErrBadDocument, i.DID, id)
	}
	u, err := checkEndpoint(s.URL, i.dev)
	if err != nil {
		return Service{}, fmt.Errorf("service #%s of %s: %w", id, i.DID, err)
	}
	return Service{Type: s.Type, URL: u}, nil
}

// PDS is the origin of the server that holds the DID's repo.
func (i *Identity) PDS() (string, error) {
	s, err := i.Service(pdsService)
	return s.URL, err
}

// KnotEndpoint is the origin of the knot that hosts this repo DID: service #tangled_knot of type
// TangledKnot, or the older #knot.
func (i *Identity) KnotEndpoint() (string, error) {
	if s, ok := i.doc.Services[KnotService]; ok {
		if s.Type != KnotType {
			return "", fmt.Errorf("%w: service #%s of %s has type %q", ErrBadDocument, KnotService, i.DID, s.Type)
		}
		k, err := i.Service(KnotService)
		return k.URL, err
	}
	s, err := i.Service(olderKnotService)
	return s.URL, err
}
