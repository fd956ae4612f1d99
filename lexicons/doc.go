// Package lexicons owns the schema of everything that is spoken here: the lexicon JSON of every record,
// query, procedure and subscription, in both generations of the network (below org/tangled and
// sh/tangled), and the Go types made from it (packages orgtangled and shtangled).
//
// The JSON is the source. Change it, then run go generate; a test fails while the code is behind. Choices
// that the network's public facts leave open are listed with their reasons in docs/lexicons.md.
//
// Bytes from outside enter as a Record: the DAG-CBOR as it was signed, its CID and its $type. A Record is
// never encoded again, so fields that are not known here survive and the CID stays true. Decode gives a
// typed view of it, DecodeJSON one of the body of a call. Validate tells whether a record obeys its
// lexicon.
//
// It refuses, with a named error and never a panic: more than a mebibyte, nesting deeper than
// atdata.MAX_CBOR_NESTED_LEVELS, DAG-CBOR that is not in its one canonical form (a second form would let
// two readers see two records under one CID), a view of another type, and a union whose member is not
// known, which generated code decodes silently to nothing.
//
// Nothing here opens a file or a socket, and nothing here decides: who may write a record, and what it
// leads to, is for the rooms above.
package lexicons

//go:generate go run ./internal/gen -dir .
