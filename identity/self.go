package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// MaxTokenLife is the longest life of a service token, ours or a caller's.
const MaxTokenLife = 5 * time.Minute

// SelfConfig names this spindle.
type SelfConfig struct {
	// Hostname is the public host name, in lower case; the DID is did:web:<Hostname>. Required. A port
	// ("localhost:6555") is for development and is escaped as did:web asks.
	Hostname string
	// KeyPath is the PEM file with the EC P-256 identity key (see LoadKeyFile). Required.
	KeyPath string
	// Endpoint is the origin where we serve. "" means https://<Hostname>.
	Endpoint string
}

// Self is this spindle's own identity. Make it with OpenSelf; it never changes and is safe for concurrent use.
type Self struct {
	did syntax.DID
	key *atcrypto.PrivateKeyP256
	doc []byte
}

// OpenSelf loads the identity key and makes the DID document.
func OpenSelf(c SelfConfig) (*Self, error) {
	did, err := webDID(c.Hostname)
	if err != nil {
		return nil, err
	}
	if c.Endpoint == "" {
		c.Endpoint = "https://" + c.Hostname
	}
	if _, err := checkEndpoint(c.Endpoint, true); err != nil {
		return nil, fmt.Errorf("own endpoint: %w", err)
	}
	ec, err := LoadKeyFile(c.KeyPath)
	if err != nil {
		return nil, err
	}
	scalar, err := ec.ECDH()
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	key, err := atcrypto.ParsePrivateBytesP256(scalar.Bytes())
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	doc, err := document(did, key, strings.TrimSuffix(c.Endpoint, "/"))
	if err != nil {
		return nil, err
	}
	return &Self{did: did, key: key, doc: doc}, nil
}

func webDID(hostname string) (syntax.DID, error) {
	u, err := url.Parse("https://" + hostname)
	if err != nil || u.Host != hostname || hostname == "" || hostname != strings.ToLower(hostname) || strings.ContainsAny(hostname, "[]%") {
		return "", fmt.Errorf("%w: %q is not a host name in lower case", ErrBadDID, hostname)
	}
	did, err := syntax.ParseDID("did:web:" + strings.ReplaceAll(hostname, ":", "%3A"))
	if err != nil {
		return "", fmt.Errorf("%w: host name %q: %w", ErrBadDID, hostname, err)
	}
	return did, nil
}

type didDocument struct {
	Context     []string             `json:"@context"`
	ID          string               `json:"id"`
	AlsoKnownAs []string             `json:"alsoKnownAs"`
	Methods     []verificationMethod `json:"verificationMethod"`
	Services    []docService         `json:"service"`
}

type verificationMethod struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Controller string `json:"controller"`
	Multibase  string `json:"publicKeyMultibase"`
}

type docService struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Endpoint string `json:"serviceEndpoint"`
}

func document(did syntax.DID, key *atcrypto.PrivateKeyP256, endpoint string) ([]byte, error) {
	pub, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	b, err := json.MarshalIndent(didDocument{
		Context:     []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		ID:          did.String(),
		AlsoKnownAs: []string{},
		Methods: []verificationMethod{{
			ID: did.String() + "#atproto", Type: "Multikey", Controller: did.String(), Multibase: pub.Multibase(),
		}},
		Services: []docService{{ID: "#" + SpindleService, Type: SpindleType, Endpoint: endpoint}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("own DID document: %w", err)
	}
	return append(b, '\n'), nil
}

// DID is our own DID.
func (s *Self) DID() string { return s.did.String() }

// Audience is the DID with the fragment of our service, the form that callers should put into aud.
func (s *Self) Audience() string { return s.did.String() + "#" + SpindleService }

// Document is the DID document as JSON, for /.well-known/did.json. The caller must not change it.
func (s *Self) Document() []byte { return s.doc }

// Mint makes a service token that lets us call the method lxm (an NSID) at aud (a DID, with or without a
// service fragment) for the time ttl, at most MaxTokenLife. See https://atproto.com/specs/xrpc,
// "Inter-Service Authentication". The token is a secret.
func (s *Self) Mint(ctx context.Context, aud, lxm string, ttl time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	did, _, _ := strings.Cut(aud, "#")
	if _, err := syntax.ParseDID(did); err != nil {
		return "", fmt.Errorf("mint service token: audience: %w", err)
	}
	nsid, err := syntax.ParseNSID(lxm)
	if err != nil {
		return "", fmt.Errorf("mint service token: method: %w", err)
	}
	if ttl < time.Second || ttl > MaxTokenLife {
		return "", fmt.Errorf("mint service token: life of %s is not within 1 s and %s", ttl, MaxTokenLife)
	}
	t, err := auth.SignServiceAuth(s.did, aud, ttl, &nsid, s.key)
	if err != nil {
		return "", fmt.Errorf("mint service token: %w", err)
	}
	return t, nil
}
