// Package identity is who is who on the network: it resolves DIDs, proves what their owners have signed,
// and speaks for our own DID.
//
// It owns the key file and DID document of this spindle (Self), the bounded cache of other DIDs' documents
// (Directory), the check of service tokens that callers bring (Verifier), and the proof of single records
// (Prover). Handles are for display: nothing here or above decides by a handle.
//
// It refuses DIDs outside the two methods of atproto and did:web names that are not plain public host names;
// documents over 64 KiB, or slower than 5 s, or that name another DID; service tokens that miss any of
// iss, aud, lxm, iat, exp and jti, live longer than five minutes, or were seen before; and records whose
// block hashes, tree path or commit signature do not hold. What a stream or a host merely says about a
// record is never believed: the bytes come with a proof or there is no record.
//
// Data comes from PLC directories, did:web hosts, PDSes and knots, all through a guarded HTTP client, and
// all hostile: every read is bounded and every refusal has a name. Callers tell a refusal from a failure to
// reach somebody with Temporary.
//
// A host that answers 429, or 503 with a time, is left alone for as long as it asks, and of callers that say so
// (Visit) only a few are at one host at a time, so that a slow one holds up nobody else.
//
// Two errors may not be mixed up: ErrAbsent means that the owner's signed tree proves the record is not
// there; ErrUnproven means that somebody says so.
package identity
