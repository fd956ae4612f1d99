// Package blobs owns content-addressed bytes, on disk or in an S3 bucket: artifacts, caches, archived logs
// and image layers.
//
// A blob is named by the SHA-256 of its content, which the server computes itself; it is written once and
// never changes. What a blob means, who may read it and when it may go is written in the store, never here,
// so the two cannot disagree about a blob that half exists: bytes without a row are swept by age.
package blobs
