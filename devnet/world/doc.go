// Package world is a spindle on a small network of its own, all on this machine: what `spindle demo` and
// `spindle dev` run and what the tests and benchmarks of the whole server start from.
//
// It owns the folder, the network (devnet) and the server (daemon) and nothing of how either works; it hands
// the server only addresses. Client speaks to the server as anyone would: calls, streams and pages over HTTP.
package world
