package xrpc

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"spindle/identity"
	"spindle/rbac"
	"spindle/store"
)

// maxToken is the longest service token that is looked at, in bytes.
const maxToken = 8 << 10

// caller verifies the service token of a call of nsid and gives the DID it speaks for. To find out who an
// unknown issuer is, others must be asked, so refused tokens of such issuers count against the address. Whoever is
// known here is let through all the same: one address may be that of many people, and of a knot.
func (s *Server) caller(r *http.Request, nsid, addr string) (string, error) {
	token, err := bearer(r)
	if err != nil {
		return "", err
	}
	issuer, err := s.c.Tokens.Issuer(token, nsid)
	if err != nil {
		s.m.tokens.WithLabelValues(identity.Reason(err)).Inc()
		return "", errors.Join(tokenError(err), err)
	}
	if wait := s.failures.wait(addr); wait > 0 && !s.familiar.knows(r.Context(), s.c, issuer) {
		return "", &Error{Code: RateLimitExceeded, Message: "too many refused tokens came from this address; try again later", RetryAfter: wait}
	}
	did, err := s.c.Tokens.Verify(r.Context(), token, nsid)
	if err != nil {
		e := tokenError(err)
		if e.Code.Status() == http.StatusUnauthorized && !s.familiar.knows(r.Context(), s.c, issuer) {
			s.failures.take(addr)
		}
		s.m.tokens.WithLabelValues(identity.Reason(err)).Inc()
		return "", errors.Join(e, err)
	}
	s.familiar.add(did)
	if wait := s.callers.take(did); wait > 0 {
		return "", &Error{Code: RateLimitExceeded, Message: "too many calls by " + did + "; try again later", RetryAfter: wait}
	}
	return did, nil
}

// bearer is the token of the request's one Authorization header.
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", refuse(AuthenticationRequired, "this call needs a service token: Authorization: Bearer …, made for this spindle and this method")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", refuse(InvalidToken, "the Authorization header must be given once and hold one Bearer token")
	}
	return token, nil
}

// tokenError is what the caller may know of why its token was refused.
func tokenError(err error) *Error {
	switch {
	case errors.Is(err, identity.ErrTokenReplayed):
		return refuse(ReplayedToken, "the service token was used before; make a new one for each call")
	case errors.Is(err, identity.ErrTokenExpired), errors.Is(err, identity.ErrTokenLifetime), errors.Is(err, identity.ErrTokenEarly):
		return refuse(ExpiredToken, "the service token is not valid now or for too long; make one that ends within five minutes, and check your clock")
	case errors.Is(err, identity.ErrTokenAudience):
		return refuse(InvalidToken, "the service token is for another audience than this spindle")
	case errors.Is(err, identity.ErrTokenMethod):
		return refuse(InvalidToken, "the service token is for another method; its lxm must name the method that is called")
	case errors.Is(err, identity.ErrTokenNoID):
		return refuse(InvalidToken, "the service token needs a jti, so that it can be used once only")
	case errors.Is(err, identity.ErrSignature), errors.Is(err, identity.ErrTokenKey), errors.Is(err, identity.ErrTokenAlgorithm):
		return refuse(InvalidToken, "the service token is not signed by its issuer's #atproto key with ES256 or ES256K")
	case errors.Is(err, identity.ErrTokenIssuer), errors.Is(err, identity.ErrBadDID), errors.Is(err, identity.ErrNotFound), errors.Is(err, identity.ErrBadDocument):
		return refuse(InvalidToken, "the issuer of the service token is no account that can be found")
	case errors.Is(err, identity.ErrTokenMalformed), errors.Is(err, identity.ErrTokenType):
		return refuse(InvalidToken, "the service token is malformed")
	}
	var r Refusal
	if errors.As(err, &r) {
		return public(err)
	}
	if errors.Is(err, identity.ErrUnreachable) {
		return &Error{Code: UpstreamFailure, Message: "the directory that knows the token's issuer did not answer; try again", RetryAfter: retryLater}
	}
	return public(err)
}

// may asks the policy in force whether did may do a to the repository.
func (s *Server) may(ctx context.Context, did string, a rbac.Action, repo, owner string) error {
	gate, err := s.c.Policy.Gate(ctx)
	if err != nil {
		return err
	}
	if d := gate.May(did, a, rbac.Repo{DID: repo, Owner: owner}); !d.Allowed {
		return decided(d)
	}
	return nil
}

// repo is the repository with this DID, which must be served here.
func (s *Server) repo(ctx context.Context, did string) (store.RepoBinding, error) {
	b, ok, err := s.c.Repos.Repo(ctx, did)
	if err != nil {
		return b, err
	}
	if ok && b.Gone && b.GoneReason != "" {
		return b, refuse(RepoNotFound, "this spindle does not serve "+did+" any more: "+b.GoneReason)
	}
	if !ok || b.Gone {
		return b, refuse(RepoNotFound, "this spindle does not serve "+did+"; its owner must choose it in the repository's settings")
	}
	return b, nil
}

// upstream tells a caller that a host that is needed for its call failed. Refusals keep their own words.
func upstream(err error) error {
	if e := public(err); e.Code != InternalServerError {
		return err
	}
	if errors.Is(err, identity.ErrNotFound) || errors.Is(err, identity.ErrBadDID) || errors.Is(err, identity.ErrBadDocument) {
		return errors.Join(refuse(RepoNotVerified, "the repository has no DID document that names its knot"), err)
	}
	return errors.Join(&Error{Code: UpstreamFailure, Message: "the DID document of the repository, or the knot that it names, cannot be read now; try again", RetryAfter: retryLater}, err)
}
