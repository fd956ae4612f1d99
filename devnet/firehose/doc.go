// Package firehose is the event stream of record repositories as their hosts tell it: com.atproto.sync.subscribeRepos
// (https://atproto.com/specs/event-stream, https://atproto.com/specs/sync), CBOR over a websocket.
//
// It owns the log of messages, in memory, numbered from 1, and who reads it. A cursor is the number of the last message
// that a reader has; without one it gets what happens from then on. A cursor in the future is refused with an error
// message, and one before what is kept is told so in an info message and begins with the oldest that is left.
//
// The commits are real: their blocks prove, with the account's signature, what they say. Faults and Raw let a host lie
// all the same.
package firehose
