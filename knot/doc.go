// Package knot is git hosts as a client sees them: what a knot says about a repository, and the git
// objects of one commit.
//
// It owns the binding of a repository (Bind), the cached bare repositories below Config.RepoDir, and the
// only place where the git program is started. Records come through an identity prover, so they carry a
// signature; git objects come from the knot that the repository's DID document names, never from one that
// a caller names.
//
//	DID document of the repo --> knot --> manifest (signed by the repo) --> owner, rkey
//	                                                                          |
//	      served only if  declaration.repo == repo  <-- owner's PDS <---------+
//
// The git side holds up to three bare repositories per repository, since a filtered one must never be
// taken for a whole one:
//
//	<did>.git          whole commits, shallow; what a checkout is made from
//	<did>.trees.git    commits and trees, of repositories too large to fetch whole for their workflow files
//	<did>.history.git  commits alone, to decide whether a commit lies inside a ref
//
// It refuses: a repository whose three statements do not point at each other (*BindError), names, refs and
// hashes in any but their plain form, redirects, every protocol but https (http with Dev), a fetch that is
// too large or too slow, and whatever in a tree is not a regular file. Each refusal is an error that
// Temporary can tell from a passing failure.
//
// Invariants: there is never a work tree here; git runs without a shell, with a fixed argument list and
// environment, in its own process group, and reaches the network through the guarded proxy only. A cached
// repository may be deleted at any time: it is fetched again.
package knot
