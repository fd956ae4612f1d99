// Package pds keeps record repositories as a Personal Data Server does: signed commits over Merkle search
// trees, records in DAG-CBOR, proofs as CAR files. The accounts' server of the development network is one
// Host; a knot, which holds the record repository of each git repository, is another.
//
// It owns the records, the trees and the signing keys of the repositories it hosts. It refuses a record
// that is no atproto data, a key that is no repository path, and writes over the wire without the
// account's token. Every change is told to the Sink, in the order of the commits.
//
// Invariant: outside Tamper, whatever leaves here verifies with indigo against the key in the directory.
// Tamper makes one repository serve proofs that are wrong in one chosen way; its records stay right.
package pds
