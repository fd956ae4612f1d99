package xrpc

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"spindle/identity"
	"spindle/rbac"
	"spindle/store"
)

// Code is the name of an error as callers compare it.
type Code string

// The codes: a closed list. docs/api.md tells what each means to a caller.
const (
	InvalidRequest         Code = "InvalidRequest"
	MethodNotImplemented   Code = "MethodNotImplemented"
	MethodNotAllowed       Code = "MethodNotAllowed"
	UnsupportedMediaType   Code = "UnsupportedMediaType"
	PayloadTooLarge        Code = "PayloadTooLarge"
	RateLimitExceeded      Code = "RateLimitExceeded"
	NotEnoughResources     Code = "NotEnoughResources"
	InternalServerError    Code = "InternalServerError"
	UpstreamFailure        Code = "UpstreamFailure"
	AuthenticationRequired Code = "AuthenticationRequired"
	InvalidToken           Code = "InvalidToken"
	ExpiredToken           Code = "ExpiredToken"
	ReplayedToken          Code = "ReplayedToken"
	Forbidden              Code = "Forbidden"
	OwnerPaused            Code = "OwnerPaused"
	OwnerBanned            Code = "OwnerBanned"
	OwnerNotFound          Code = "OwnerNotFound"
	RepoNotFound           Code = "RepoNotFound"
	RepoNotVerified        Code = "RepoNotVerified"
	RefNotFound            Code = "RefNotFound"
	PipelineNotFound       Code = "PipelineNotFound"
	PipelineNotBlocked     Code = "PipelineNotBlocked"
	PipelineEnded          Code = "PipelineEnded"
	PipelineNotRetryable   Code = "PipelineNotRetryable"
	WorkflowNotFound       Code = "WorkflowNotFound"
	NoMatchingWorkflows    Code = "NoMatchingWorkflows"
	EventNotSupported      Code = "EventNotSupported"
	EventConflict          Code = "EventConflict"
	SecretNotFound         Code = "SecretNotFound"
	InvalidSecret          Code = "InvalidSecret"
	TooManySubscribers     Code = "TooManySubscribers"
)

// Status is the HTTP status that goes with c, or 0 when c is not on the list.
func (c Code) Status() int {
	switch c {
	case InvalidRequest, NoMatchingWorkflows, EventNotSupported, InvalidSecret:
		return http.StatusBadRequest
	case AuthenticationRequired, InvalidToken, ExpiredToken, ReplayedToken:
		return http.StatusUnauthorized
	case Forbidden, OwnerPaused, OwnerBanned, RepoNotVerified:
		return http.StatusForbidden
	case OwnerNotFound, RepoNotFound, RefNotFound, PipelineNotFound, WorkflowNotFound, SecretNotFound:
		return http.StatusNotFound
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case PipelineNotBlocked, PipelineEnded, PipelineNotRetryable, EventConflict:
		return http.StatusConflict
	case PayloadTooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case RateLimitExceeded, TooManySubscribers:
		return http.StatusTooManyRequests
	case InternalServerError:
		return http.StatusInternalServerError
	case MethodNotImplemented:
		return http.StatusNotImplemented
	case UpstreamFailure:
		return http.StatusBadGateway
	case NotEnoughResources:
		return http.StatusServiceUnavailable
	}
	return 0
}

// Codes lists every code once, in the order of docs/api.md.
func Codes() []Code {
	return []Code{
		InvalidRequest, MethodNotImplemented, MethodNotAllowed, UnsupportedMediaType, PayloadTooLarge,
		RateLimitExceeded, NotEnoughResources, InternalServerError, UpstreamFailure,
		AuthenticationRequired, InvalidToken, ExpiredToken, ReplayedToken, Forbidden, OwnerPaused, OwnerBanned,
		OwnerNotFound, RepoNotFound, RepoNotVerified, RefNotFound,
		PipelineNotFound, PipelineNotBlocked, PipelineEnded, PipelineNotRetryable, WorkflowNotFound,
		NoMatchingWorkflows, EventNotSupported, EventConflict, SecretNotFound, InvalidSecret, TooManySubscribers,
	}
}

// Error is a refusal with a code from the list. Message is a sentence for the caller: what was refused, why,
// and who can change it.
type Error struct {
	Code    Code
	Message string
	// RetryAfter tells when to come again; 0 tells nothing.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return "xrpc: " + string(e.Code) + ": " + e.Message }

// Public implements Refusal.
func (e *Error) Public() (code, sentence string) { return string(e.Code), e.Message }

// Refusal is an error of a lower level that is meant for the caller. Its code must be on the list; one that
// is not is an internal error, and its sentence is not told.
type Refusal interface {
	error
	Public() (code, sentence string)
}

// refuse makes an Error.
func refuse(c Code, sentence string) *Error { return &Error{Code: c, Message: sentence} }

// retryLater is how long a caller is asked to wait when nothing better is known.
const retryLater = 5 * time.Second

// public is what a caller may know of err. Whatever is not meant for callers is an InternalServerError
// without a word of err.
func public(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var r Refusal
	if errors.As(err, &r) {
		code, sentence := r.Public()
		if Code(code).Status() != 0 {
			return &Error{Code: Code(code), Message: sentence}
		}
	}
	var refusal *store.Refusal
	if errors.As(err, &refusal) {
		return decided(refusal.Decision)
	}
	if identity.Temporary(err) && !errors.Is(err, context.Canceled) {
		return &Error{Code: NotEnoughResources, Message: "that took too long here or at a host that is needed for it; try again", RetryAfter: retryLater}
	}
	return refuse(InternalServerError, "the server failed; nothing is known to have changed")
}

// decided turns a refusing decision of rbac into an error.
func decided(d rbac.Decision) *Error {
	switch d.Code {
	case rbac.CodeBanned:
		return refuse(OwnerBanned, d.Sentence)
	case rbac.CodePaused, rbac.CodeNotAllowed, rbac.CodeInactive:
		return refuse(OwnerPaused, d.Sentence)
	}
	return refuse(Forbidden, d.Sentence)
}

// body is the one shape of an error's body.
type body struct {
	Error   Code   `json:"error"`
	Message string `json:"message"`
}

// writeError answers with err and tells what was answered. An internal error is logged with its cause.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, nsid string, err error) Code {
	e := public(err)
	if e.Code == InternalServerError && r.Context().Err() == nil {
		s.log.LogAttrs(r.Context(), slog.LevelError, "a call failed", slog.String("nsid", nsid), slog.Any("error", err))
	}
	h := w.Header()
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Code.Status() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer error="`+string(e.Code)+`"`)
	}
	writeJSON(w, e.Code.Status(), body{Error: e.Code, Message: e.Message})
	return e.Code
}

// writeJSON answers with v. An error of the connection is the client's affair.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalServerError","message":"the answer could not be encoded"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
