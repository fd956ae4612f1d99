// Package ingest takes what the outside says and makes durable events of it.
//
// A record stream is believed in nothing. Each frame of a collection that matters becomes a hint that one
// record may have changed; hints and the cursor that covers them are committed in one transaction, so a kill
// loses none and the reader never waits for anybody's server. Workers take the hints, fetch the record's
// signed proof from the place that the DID document names, and commit the effects together with the end of
// the hint. What cannot be reached is tried again later; what does not prove has no effect and is counted.
//
// Calls (a knot's push, a person's run) come with a service token that the edge has verified. The package
// binds them to a repository (DID document, manifest, declaration), asks the gate at the door, writes the
// event, and waits a short while for what came of it, so that the pusher gets an answer worth reading.
//
// The event streams of knots are read for repositories that are served here. What they tell becomes a hint as well,
// and is proven: by the repository's signature, or by asking the knot whether the ref holds the commit.
//
// It refuses: records without proof, events for repositories that are not served here, callers who speak
// for a repository that is not theirs, refs and object names that are not well formed.
package ingest
