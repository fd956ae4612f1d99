// Package plc is the identity directory of the development network: did:plc identities with real keys and
// their DID documents over HTTP.
//
// It owns which key signs for a DID and where its services are. It refuses writes over the wire: only the
// process that runs the network changes it, since the signed operation log of a real directory is nothing
// that a spindle reads. Private keys are not kept here.
package plc
