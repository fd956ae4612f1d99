// Package netguard is the one way out: every connection that spindle makes to a host named by somebody
// else (a knot, a PDS, a did:web host, a webhook) is dialled here.
//
// It owns the decision whether an address may be reached. The decision is taken in net.Dialer's Control
// hook, on the address the kernel is about to connect to, after name resolution. Nothing is checked
// earlier and used later, so a name that resolves differently the second time gains nothing.
//
// It refuses, outside Dev: every address that is not globally reachable unicast (the IANA special-purpose
// registries for IPv4 and IPv6, with the forms that smuggle an IPv4 address inside an IPv6 one), the
// machine's own interface addresses, networks the operator lists, ports other than 443, plain http, and
// redirects unless asked for. It never reads proxy settings from the environment.
//
// Git is a separate program with its own resolver, so it is sent through Proxy: an HTTP proxy on loopback
// with a random credential whose only way out is the same dialer.
//
// Dev is for `spindle dev`, the demo and tests: loopback and private addresses, every port and plain http
// are allowed, and Hosts maps host names to addresses so that a network of made-up names can live on one
// machine. Link-local addresses, where clouds keep their metadata services, stay refused even then.
package netguard
