package plc

import (
	"strings"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// document is a DID document with the contexts that real directories send
// (https://atproto.com/specs/did#did-documents).
type document struct {
	Context []string `json:"@context"`
	identity.DIDDocument
}

// Document is the DID document of did, ready for JSON.
func Document(did syntax.DID, e Entry) any {
	doc := document{
		Context: []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		DIDDocument: identity.DIDDocument{
			DID: did,
			VerificationMethod: []identity.DocVerificationMethod{{
				ID:                 did.String() + "#atproto",
				Type:               "Multikey",
				Controller:         did.String(),
				PublicKeyMultibase: e.Key.Multibase(),
			}},
		},
	}
	if e.Handle != "" {
		doc.AlsoKnownAs = []string{"at://" + e.Handle}
	}
	for _, s := range e.Services {
		doc.Service = append(doc.Service, identity.DocService{ID: s.ID, Type: s.Type, ServiceEndpoint: s.Endpoint})
	}
	return doc
}

// data is the shape of GET /{did}/data (https://github.com/did-method-plc/did-method-plc).
func data(did syntax.DID, e Entry) any {
	services := map[string]any{}
	for _, s := range e.Services {
		services[strings.TrimPrefix(s.ID, "#")] = map[string]string{"type": s.Type, "endpoint": s.Endpoint}
	}
	var names []string
	if e.Handle != "" {
		names = []string{"at://" + e.Handle}
	}
	return map[string]any{
		"did": did.String(), "alsoKnownAs": names, "services": services,
		"verificationMethods": map[string]string{"atproto": e.Key.DIDKey()},
	}
}
