// Package jetstream is the event stream of the development network: Jetstream version 1, as JSON over a
// websocket (https://github.com/bluesky-social/jetstream, GET /subscribe).
//
// It owns the log of events, in memory, numbered by strictly increasing microseconds, and what each
// subscriber asked for. Cursors are inclusive; without one, or with one in the future, a subscriber gets
// what happens from then on. Identity and account events pass the collection filter, commits obey it.
// With compress=true every event is one zstd frame in a binary message, made without a dictionary, which
// a decoder that holds the public dictionary reads as well.
//
// Nobody is pushed into: each subscriber reads the log at its own place, so a slow one delays itself only.
// As on the real network nothing here is signed, and Faults and Forge let it lie in every way that a
// relay can.
package jetstream
