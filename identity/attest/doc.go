// Package attest is the room for signed build provenance: statements of what was built from which commit
// by which run, signed with a key that is neither the identity key nor the ID-token key, so that no
// artefact of one kind can pass for another.
//
// It will own the attestation key and the statements' form, and refuse runs whose code or definition is
// not trusted. Its data comes from finished attempts and goes out as records and files.
package attest
