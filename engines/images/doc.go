// Package images owns the images that attempts run in: it pulls them from registries, unpacks their layers once, and
// keeps a root file system for each, which all its attempts share read-only.
//
//	Acquire --> which manifest (registry) --> layers not here: pull, verify, unpack --> root: layers laid over another
//	   |              |  tag asked again each time       |  each once, whoever waits         |  hard links, no copies
//	   |              +-- a registry that is down: the last answer, and the log says so      |
//	   +--<-- *engines.Image, held until Release ------------------------------------------- +
//
// On the disk, below Config.Dir:
//
//	layers/<diff id>/tree, layer.json   one layer, unpacked; whiteouts are a list, not files
//	roots/<manifest>/root, root.json    what attempts see; root.json is written last and makes it exist
//	tmp/                                whatever is being made or removed; emptied by New
//
// # What it refuses, by name
//
// References with a scheme, credentials or bytes that no reference has; registries that are not allowed; plain http
// except to this machine in development; manifests for another platform; layers that are not what their digests say;
// entries that point outside, paths that are too long or too deep, more entries or bytes than allowed, archives that
// unpack to absurdly more than they are. Device nodes, sockets, extended attributes and the bits for changing users
// are left out: nothing in a sandbox could use them.
//
// # Invariants
//
//   - Nothing is unpacked before its compressed bytes had the digest of the manifest; nothing is used before its
//     content had the digest of the configuration.
//   - A root that is held is not removed. The least recently used go first when room is needed.
//   - A kill at any moment leaves complete layers and roots, or things in tmp.
//   - The server's credentials are read for each pull, sent to their registry alone, and never written anywhere. An
//     attempt whose code is not trusted is served without them, from the disk too.
//   - Every connection goes through Config.Transport, which is the guard's.
//
// Bytes of layers come and go through Blobs, which the server gives it; package engines says what comes out.
package images
