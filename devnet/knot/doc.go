// Package knot is the git host of the development network: real git over smart HTTP, a record repository
// for each git repository, notices of pushes to the spindle that a repository chose, and the event stream
// of the older generation.
//
// It owns the bare repositories below its folder, the list of notices that are not acknowledged yet, and
// the stream's log. Manifest and collaborators are read from the record repository (pds.Host) at each
// push, so what counts is what is signed.
//
// Paths: /<repoDid> and /<handle or DID>/<name> are remotes; /auth/<either> is the same remote, where a
// push is asked for a user (handle or DID) and password (the account's token). Without credentials a push
// counts as the owner's: this is a network for one machine, and the demo's person should not have to log
// in. A user who is neither owner nor collaborator is refused. Reading is open to all.
//
// After receive-pack is done, and before its answer goes out, the spindle is called with
// org.tangled.event.notifyEvent under a service token signed by the repository's DID, and the text of its
// answer is put on the sideband, so that the pusher reads it as "remote: ..." lines. A spindle that does
// not answer, or answers 429 or 5xx, is called again with growing waits until it acknowledges; each call
// has a token of its own. The list lives in memory, as do the identities it speaks of.
package knot
