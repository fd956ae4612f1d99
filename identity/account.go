package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

// The statuses of an account that is not active (https://atproto.com/specs/account). A host may say another
// word; it is StatusUnavailable here.
const (
	StatusTakendown   = "takendown"
	StatusSuspended   = "suspended"
	StatusDeactivated = "deactivated"
	StatusDeleted     = "deleted"
	StatusUnavailable = "unavailable"
)

// inactive gives the errors that hosts refuse an inactive account's records with a status.
var inactive = map[string]string{
	"RepoTakendown": StatusTakendown, "RepoSuspended": StatusSuspended, "RepoDeactivated": StatusDeactivated,
	// Words of older hosts.
	"AccountTakedown": StatusTakendown, "AccountTakendown": StatusTakendown, "AccountDeactivated": StatusDeactivated,
}

const maxStatus = 4 << 10

// Account is what is true of an account now.
type Account struct {
	DID    string
	Handle string // that the document claims; not verified
	// Status is why the account is not active, one of the Status constants, or "" for one that is.
	Status string
}

// Account asks anew whether the account is active: the DID is resolved without the cache, and the PDS that its
// document names is asked (com.atproto.sync.getRepoStatus). A DID that its directory has given up, and a PDS that
// has no repo of it, mean StatusDeleted; a document without a usable PDS means StatusUnavailable. A PDS that does
// not know the call is taken to serve the account: its records are proven one by one all the same. Errors are
// temporary, or ErrBadDID.
func (p *Prover) Account(ctx context.Context, did string) (Account, error) {
	a := Account{DID: did}
	id, err := p.dir.Refresh(ctx, did)
	switch {
	case errors.Is(err, ErrNotFound):
		a.Status = StatusDeleted
		return a, nil
	case errors.Is(err, ErrBadDocument):
		a.Status = StatusUnavailable
		return a, nil
	case err != nil:
		return a, fmt.Errorf("ask about the account %s: %w", did, err)
	}
	a.Handle = id.Handle
	host, err := id.PDS()
	if err != nil {
		a.Status = StatusUnavailable
		return a, nil
	}
	b, err := p.get(ctx, host, "com.atproto.sync.getRepoStatus", url.Values{"did": {did}}, maxStatus)
	var known *InactiveError
	var said *hostError
	switch {
	case err == nil:
		a.Status, err = readStatus(b, did)
	case errors.As(err, &known):
		a.Status, err = known.Status, nil
	case errors.As(err, &said) && said.name == "RepoNotFound":
		a.Status, err = StatusDeleted, nil
	case errors.As(err, &said):
		err = nil // a host that does not know the call
	case errors.Is(err, ErrBadDocument): // an address that may not be reached
		a.Status, err = StatusUnavailable, nil
	}
	if err != nil {
		return a, fmt.Errorf("ask about the account %s: %w", did, err)
	}
	return a, nil
}

// Refresh reads did's document anew. Errors are those of Directory.Refresh.
func (p *Prover) Refresh(ctx context.Context, did string) error {
	_, err := p.dir.Refresh(ctx, did)
	return err
}

// readStatus reads an answer of com.atproto.sync.getRepoStatus. One that makes no sense is temporary: nothing is
// decided by it.
func readStatus(b []byte, did string) (string, error) {
	var s struct {
		DID    string `json:"did"`
		Active *bool  `json:"active"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Active == nil || s.DID != did {
		return "", fmt.Errorf("%w: the host's answer about the account is malformed", ErrUnreachable)
	}
	if *s.Active {
		return "", nil
	}
	switch s.Status {
	case StatusTakendown, StatusSuspended, StatusDeactivated, StatusDeleted:
		return s.Status, nil
	}
	return StatusUnavailable, nil
}
