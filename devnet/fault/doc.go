// Package fault makes the servers of the development network misbehave on request: late, failing, silent,
// cut off, or answering half.
//
// It owns Gate, which stands in front of one HTTP server, and Listener, which knows the open sockets of
// one and can cut them. A gate without rules passes everything through. It invents nothing: what a server
// says wrongly (a tampered proof, a forged event) is the matter of that server's own package.
//
// Rules may be changed while requests are under way; a request obeys the rules that stood when it came.
package fault
