// Package orgtangled holds the Go types of the org.tangled lexicons, the native tongue of the network.
//
// Everything but this file is generated; see package lexicons. The types are views: encoding one again
// loses the fields that it does not know, so what is stored or signed is always the bytes of a
// lexicons.Record. Decode with lexicons.Decode and lexicons.DecodeJSON, which refuse what a bare decoder
// lets through.
package orgtangled
