// Package devnet is a small network in one process, over real sockets on this machine: a PLC directory, a
// PDS with signed record repositories, a Jetstream, and a knot with git over smart HTTP. `spindle demo` and
// `spindle dev` run on it, and so do the integration tests; the spindle cannot tell it from the real thing
// but for its made-up host names.
//
// It owns the accounts and repositories that live on it and the wiring between its parts, which are
// packages of their own: plc, pds, jetstream, knot, and fault, which makes their servers misbehave on
// request. Each part has its own port, since endpoints in DID documents are origins.
//
//	account --records--> PDS --------+
//	                                 +--> Jetstream --> spindle
//	repo    --records--> knot -------+                     ^
//	push    --git------> knot --notifyEvent, own token-----+
//	DID     ----------> PLC: where the PDS and the knot are, which key signs
//
// It refuses nothing that a real network would take; what protects a spindle from its peers must be in the
// spindle. It keeps everything but git objects in memory and forgets it with Close. Only git is needed
// besides. Listen on loopback only: a push without credentials counts as the owner's (see package knot).
package devnet
