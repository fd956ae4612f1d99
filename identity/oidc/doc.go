// Package oidc mints OpenID Connect ID tokens: what a run shows to a cloud or a registry to prove which
// commit of which repo it is, in place of a stored password.
//
// It owns the ID-token key, which signs nothing else. It refuses to say anything that was not proven: every
// claim comes from the control plane's own facts about a run, never from the job; a run whose facts cannot
// be put into a claim without doubt, or whose code is not trusted, gets ErrUnrecordable and no token; an
// audience that is a DID, a service of ours, or not one plain word gets ErrAudience, so that an ID token can
// never pass for a service token, nor be turned against us.
//
// sub is built from the repo's DID, which cannot be renamed or squatted, and from text that holds no
// delimiter of its own, so different runs never share one:
//
//	repo:<repo DID>:ref:<full ref>      a branch or tag
//	repo:<repo DID>:pull_request        a pull request, whatever its branch
//	repo:<repo DID>:commit:<sha>        a run with no ref
//
// Data comes from planned runs; it goes out as tokens, the discovery document and the key set. The issuer in
// both is the configured one; no request header has a say in it.
package oidc
