package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Errors of looking up DIDs and proving records. Test for them with errors.Is.
var (
	ErrBadDID      = errors.New("identity: not an acceptable DID")
	ErrNotFound    = errors.New("identity: no such DID")
	ErrBadDocument = errors.New("identity: unusable DID document")
	ErrUnreachable = errors.New("identity: cannot be reached now")
	ErrBusy        = errors.New("identity: too many lookups")

	// ErrAbsent: the record is not there, and the owner's signed tree proves it.
	ErrAbsent = errors.New("identity: record is absent")
	// ErrUnproven: the host says that the record or repo is not there, without a proof.
	ErrUnproven = errors.New("identity: host denies the record without proof")
	// ErrProof: the proof is malformed, incomplete, or of something else.
	ErrProof = errors.New("identity: proof does not hold")
	// ErrSignature: the signature is not by the issuer's current #atproto key.
	ErrSignature = errors.New("identity: signature does not verify")
	// ErrFutureRev: the repo's revision lies more than five minutes ahead of our clock.
	ErrFutureRev = errors.New("identity: revision from the future")
	// ErrTooBig: the repo is above the limits of what is read as a whole.
	ErrTooBig = errors.New("identity: repo is above the limits")
	// ErrUnsupported: the host has no such method. It is an ErrUnproven as well: nothing is proven by it.
	ErrUnsupported = errors.New("identity: host does not offer the method")
)

// hostError is a host's refusal, an ErrUnproven.
type hostError struct {
	code int
	name string // the XRPC error
}

// Error implements error.
func (e *hostError) Error() string {
	return fmt.Sprintf("%v: status %d, %s", ErrUnproven, e.code, e.name)
}

// Is makes every hostError an ErrUnproven, and that of a host which does not know the method an ErrUnsupported.
func (e *hostError) Is(target error) bool {
	if target != ErrUnsupported {
		return target == ErrUnproven
	}
	switch e.name {
	case "MethodNotImplemented", "XRPCNotSupported":
		return true
	case noErrorName:
		return e.code == http.StatusNotFound || e.code == http.StatusMethodNotAllowed || e.code == http.StatusNotImplemented
	}
	return e.code == http.StatusNotImplemented
}

// noErrorName stands for the name of an error that a host did not give, or not in a form to repeat.
const noErrorName = "no error name"

// InactiveError is a host's word that it does not hand out what an account has, because the account is not
// active. It is an ErrUnproven: the host says so, and nothing proves it.
type InactiveError struct {
	DID    string // the account
	Status string // takendown, suspended, deactivated or deleted
}

// Error implements error.
func (e *InactiveError) Error() string {
	return fmt.Sprintf("%v: the account %s is %s", ErrUnproven, e.DID, e.Status)
}

// Is makes every InactiveError an ErrUnproven.
func (e *InactiveError) Is(target error) bool { return target == ErrUnproven }

// Errors of Verifier.Verify, beside ErrSignature and the temporary ones: a closed set.
var (
	ErrTokenMalformed = errors.New("identity: malformed token")
	ErrTokenAlgorithm = errors.New("identity: token algorithm not accepted")
	ErrTokenType      = errors.New("identity: not a service token")
	ErrTokenKey       = errors.New("identity: token key not accepted")
	ErrTokenIssuer    = errors.New("identity: token issuer not accepted")
	ErrTokenAudience  = errors.New("identity: token is for another audience")
	ErrTokenMethod    = errors.New("identity: token is for another method")
	ErrTokenLifetime  = errors.New("identity: token lifetime not accepted")
	ErrTokenExpired   = errors.New("identity: token expired")
	ErrTokenEarly     = errors.New("identity: token not valid yet")
	ErrTokenNoID      = errors.New("identity: token without jti")
	ErrTokenReplayed  = errors.New("identity: token used before")
)

// Temporary says whether err may go away by itself, so that asking again later makes sense: somebody could
// not be reached, a limit was hit, or the caller's time ran out. Everything else is a refusal.
func Temporary(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrBusy) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// reasons gives each error a short name for metrics and for the wire.
var reasons = []struct {
	err  error
	name string
}{
	{ErrBadDID, "BadDID"}, {ErrNotFound, "DIDNotFound"}, {ErrBadDocument, "BadDocument"}, {ErrUnreachable, "Unreachable"},
	{ErrBusy, "Busy"}, {ErrAbsent, "Absent"}, {ErrTooBig, "TooBig"}, {ErrUnsupported, "Unsupported"}, {ErrUnproven, "Unproven"}, {ErrProof, "BadProof"}, {ErrSignature, "BadSignature"},
	{ErrFutureRev, "FutureRev"}, {ErrTokenMalformed, "TokenMalformed"}, {ErrTokenAlgorithm, "TokenAlgorithm"},
	{ErrTokenType, "TokenType"}, {ErrTokenKey, "TokenKey"}, {ErrTokenIssuer, "TokenIssuer"}, {ErrTokenAudience, "TokenAudience"},
	{ErrTokenMethod, "TokenMethod"}, {ErrTokenLifetime, "TokenLifetime"}, {ErrTokenExpired, "TokenExpired"},
	{ErrTokenEarly, "TokenEarly"}, {ErrTokenNoID, "TokenNoID"}, {ErrTokenReplayed, "TokenReplayed"},
}

// Reason is the short name of err from a closed set, fit for a metric label. "Other" is none of ours.
func Reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "Other"
}

// Absence is an ErrAbsent that tells at which revision of the repo the record was not there.
type Absence struct{ DID, Collection, Rkey, Rev string }

// Error implements error.
func (a *Absence) Error() string { return ErrAbsent.Error() + " at revision " + a.Rev }

// Is makes every Absence an ErrAbsent.
func (a *Absence) Is(target error) bool { return target == ErrAbsent }
