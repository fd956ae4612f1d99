// Package netguard is the one way out: every connection that the server opens because somebody else
// named an address goes through it.
//
// It owns the rule which addresses may be reached, a dialer that applies the rule to the address really
// dialled (after name resolution, so that a name which answers differently the second time gains
// nothing), HTTP clients over that dialer, and a local proxy over the same dialer for programs that
// resolve names themselves, git above all.
//
// It refuses every IANA special-purpose address of both families in every disguise (IPv4-mapped, NAT64,
// 6to4, Teredo), cloud metadata services, the machine's own addresses, ports other than 443, plain http,
// redirects, URLs with a user part, and proxies from the environment. Development mode (Config.Dev)
// opens exactly what its fields name.
//
// Invariants: no connection is opened before its address has passed; a refusal is ErrDenied and is
// counted; nothing here logs or keeps what passes through.
//
// Addresses come from DID documents, records and configuration by way of identity, knot and feed;
// connections go back to them.
package netguard
