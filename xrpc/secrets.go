package xrpc

import (
	"context"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/rbac"
	"spindle/store"
)

// The bounds of a secret, in bytes. The value's is the lexicon's too.
const (
	maxSecretName  = 50
	maxSecretValue = 4096
)

// secretsOf is the repository named by a DID or, in the older calls, by the at-uri of its record, if the
// caller may look after its secrets.
func (s *Server) secretsOf(ctx context.Context, caller, name string) (store.RepoBinding, error) {
	b, err := s.named(ctx, name)
	if err != nil {
		return b, err
	}
	return b, s.may(ctx, caller, rbac.Secrets, b.Repo, b.Owner)
}

// named is the repository that name means: a DID, or the at-uri of the record that its owner has of it.
func (s *Server) named(ctx context.Context, name string) (store.RepoBinding, error) {
	if strings.HasPrefix(name, "did:") {
		if _, err := syntax.ParseDID(name); err != nil {
			return store.RepoBinding{}, refuse(InvalidRequest, "repo is no DID")
		}
		return s.repo(ctx, name)
	}
	uri, err := syntax.ParseATURI(name)
	if err != nil || uri.RecordKey() == "" {
		return store.RepoBinding{}, refuse(InvalidRequest, "repo is neither a DID nor the at-uri of a repository's record")
	}
	all, err := s.c.Repos.Repos(ctx)
	if err != nil {
		return store.RepoBinding{}, err
	}
	for _, b := range all {
		if !b.Gone && b.Owner == uri.Authority().String() && b.Rkey == uri.RecordKey().String() {
			return b, nil
		}
	}
	return store.RepoBinding{}, refuse(RepoNotFound, "this spindle does not serve that repository; its owner must choose it in the repository's settings")
}

// put sets a secret. The value is never part of an error.
func (s *Server) put(ctx context.Context, caller, repo, name, value string) error {
	b, err := s.secretsOf(ctx, caller, repo)
	if err != nil {
		return err
	}
	if !shellName(name) {
		return refuse(InvalidSecret, "the name of a secret is a shell identifier of 1 to 50 characters: letters, digits and _, and no digit first")
	}
	if value == "" || len(value) > maxSecretValue || strings.ContainsRune(value, 0) {
		return refuse(InvalidSecret, "the value of a secret has 8 to 4096 bytes and no NUL")
	}
	return s.c.Secrets.Put(ctx, b.Repo, name, value, caller)
}

// remove removes a secret.
func (s *Server) remove(ctx context.Context, caller, repo, name string) error {
	b, err := s.secretsOf(ctx, caller, repo)
	if err != nil {
		return err
	}
	was, err := s.c.Secrets.Delete(ctx, b.Repo, name, caller)
	if err != nil {
		return err
	}
	if !was {
		return refuse(SecretNotFound, "the repository has no secret of that name")
	}
	return nil
}

// list names the secrets of a repository.
func (s *Server) list(ctx context.Context, caller, repo string) (store.RepoBinding, []Secret, error) {
	b, err := s.secretsOf(ctx, caller, repo)
	if err != nil {
		return b, nil, err
	}
	all, err := s.c.Secrets.List(ctx, b.Repo)
	return b, all, err
}

// shellName tells whether a shell can have a variable of this name.
func shellName(s string) bool {
	if s == "" || len(s) > maxSecretName {
		return false
	}
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}
