package plc

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// ErrUnknownDID is the answer to a change of a DID that was never made here.
var ErrUnknownDID = errors.New("plc: no such DID")

// Service is one entry of a DID document's service list.
type Service struct {
	ID       string // fragment with "#", e.g. "#atproto_pds"
	Type     string
	Endpoint string // origin URL
}

// The services that this network knows.
const (
	PDSService  = "#atproto_pds"
	PDSType     = "AtprotoPersonalDataServer"
	KnotService = "#tangled_knot"
	KnotType    = "TangledKnot"
)

// Entry is what the directory holds about one DID.
type Entry struct {
	Handle   string // empty: none
	Key      atcrypto.PublicKey
	Services []Service
}

// Directory is the set of identities. Make it with New; it is safe for concurrent use.
type Directory struct {
	mu      sync.Mutex
	entries map[syntax.DID]*Entry
	gone    map[syntax.DID]bool
}

// New returns an empty directory.
func New() *Directory {
	return &Directory{entries: map[syntax.DID]*Entry{}, gone: map[syntax.DID]bool{}}
}

// Create registers e under a fresh did:plc. The DID is random: a real directory derives it from the
// signed genesis operation, which no reader of DID documents checks.
func (d *Directory) Create(e Entry) (syntax.DID, error) {
	var b [15]byte
	// crypto/rand.Read never fails on the platforms that Go supports (it ends the process instead).
	_, _ = rand.Read(b[:])
	// 15 bytes are 24 characters of base32, the length of a did:plc identifier.
	did := syntax.DID("did:plc:" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])))
	return did, d.Put(did, e)
}

// Put registers or replaces e under did.
func (d *Directory) Put(did syntax.DID, e Entry) error {
	if e.Key == nil {
		return fmt.Errorf("plc: register %s: no key", did)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.Services = append([]Service(nil), e.Services...)
	d.entries[did] = &e
	delete(d.gone, did)
	return nil
}

// SetKey makes key the signing key of did.
func (d *Directory) SetKey(did syntax.DID, key atcrypto.PublicKey) error {
	return d.change(did, func(e *Entry) { e.Key = key })
}

// SetHandle gives did another handle; empty takes it away.
func (d *Directory) SetHandle(did syntax.DID, handle string) error {
	return d.change(did, func(e *Entry) { e.Handle = handle })
}

// SetService adds s to did or replaces the service of the same ID. An empty endpoint removes it.
func (d *Directory) SetService(did syntax.DID, s Service) error {
	return d.change(did, func(e *Entry) {
		out := make([]Service, 0, len(e.Services)+1)
		for _, old := range e.Services {
			if old.ID != s.ID {
				out = append(out, old)
			}
		}
		if s.Endpoint != "" {
			out = append(out, s)
		}
		e.Services = out
	})
}

// Tombstone makes did answer 410, as a directory does for a DID that was given up. Put brings it back.
func (d *Directory) Tombstone(did syntax.DID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries[did] == nil {
		return fmt.Errorf("%w: %s", ErrUnknownDID, did)
	}
	d.gone[did] = true
	return nil
}

// Lookup returns a copy of what is held about did.
func (d *Directory) Lookup(did syntax.DID) (Entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[did]
	if e == nil || d.gone[did] {
		return Entry{}, false
	}
	out := *e
	out.Services = append([]Service(nil), e.Services...)
	return out, true
}

func (d *Directory) change(did syntax.DID, f func(*Entry)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[did]
	if e == nil {
		return fmt.Errorf("%w: %s", ErrUnknownDID, did)
	}
	f(e)
	return nil
}

// ServeHTTP answers GET /{did} with the DID document, GET /{did}/data with the plain data, and
// GET /_health.
func (d *Directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, `{"message":"this directory is changed by its owner only"}`, http.StatusMethodNotAllowed)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if path == "_health" {
		writeJSON(w, "application/json", http.StatusOK, map[string]string{"version": "devnet"})
		return
	}
	name, rest, _ := strings.Cut(path, "/")
	did, err := syntax.ParseDID(name)
	if err != nil || rest != "" && rest != "data" {
		writeJSON(w, "application/json", http.StatusNotFound, map[string]string{"message": "Not Found"})
		return
	}
	d.mu.Lock()
	gone := d.gone[did]
	d.mu.Unlock()
	if gone {
		writeJSON(w, "application/json", http.StatusGone, map[string]string{"message": "DID not available: " + did.String()})
		return
	}
	e, ok := d.Lookup(did)
	if !ok {
		writeJSON(w, "application/json", http.StatusNotFound, map[string]string{"message": "DID not registered: " + did.String()})
		return
	}
	if rest == "data" {
		writeJSON(w, "application/json", http.StatusOK, data(did, e))
		return
	}
	writeJSON(w, "application/did+ld+json", http.StatusOK, Document(did, e))
}

func writeJSON(w http.ResponseWriter, kind string, status int, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	// A client that left is no matter of the directory.
	_ = json.NewEncoder(w).Encode(v)
}
