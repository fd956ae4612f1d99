// Package blobs owns content-addressed bytes on disk: the layers, manifests and configurations of images now, and
// whatever else is named by its digest.
//
// A blob is named by the SHA-256 of its content, which this package computes itself; it is written once and never
// changes. It exists when it is whole: bytes are written beside, synced, and then renamed. What a blob means and who
// may read it is the caller's to know.
//
//	Put --> tmp/ --sync, verify, rename--> sha256/ab/abcd...   --Get (verified while it is read)--> caller
//	                                            |
//	                          least recently used, when room is needed and nobody holds it
//
// # What it refuses
//
//   - Content that is not what its digest says, when it is written and again when it is read. A blob that is found
//     damaged is removed, so that the next Put mends it.
//   - More bytes than Config.MaxBytes, those being written included: the least recently used blobs go first; where
//     all that is left is in use, the writer gets ErrFull. A full disk is ErrNoSpace, and leaves nothing behind.
//
// # Invariants
//
//   - A blob that is held (Hold, an open Reader) is not removed.
//   - A kill at any moment leaves whole blobs and temporary files; the latter are removed by the next New.
//   - One process uses a folder at a time.
//
// The methods of Disk take digests and streams and nothing of a file system, so that a bucket can stand behind the
// same interface; callers declare what they need of it.
package blobs
