// Package xrpc is the door for programs: the calls and streams of both generations of the network, one
// file per NSID, and the few well-known documents beside them.
//
// Every call goes the same way: count the caller's address, check the method and the size, verify the
// service token for exactly this method, count the caller's DID, decode by the lexicon, ask rbac, call one
// interface of Config, encode. A handler holds none of these steps but the last three.
//
// It owns no state that outlives the process: token buckets, and the number of open streams. Everything
// else is read from and written to what Config names.
//
// It refuses with one error shape, {error, message}, whose name is from the closed list in errors.go
// (docs/api.md tells what to do about each). The message is a sentence written for the caller; what an inner
// error says goes to the log and never into a body. A pipeline of another repository is not found, so that
// nobody learns of it.
//
// Streams are pulled: a subscriber is a cursor into the logs or the change numbers, one goroutine reads for
// it and writes to its socket, and whoever is slow delays nobody but itself. There is a cap on streams in
// all and per client address, a deadline on each write, and Close waits until the last stream is gone.
package xrpc
