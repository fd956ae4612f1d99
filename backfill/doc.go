// Package backfill owns finding what ingest missed: at the start, after a gap in a stream, and now and then.
//
// It lists the records of every followed account at its PDS and the heads of every repository at its knot,
// compares them with what the store has, and hands the difference to the same accept that live events go
// through. It never writes an effect of its own, so a replayed event and a live one cannot come out
// differently, and a trigger that was already accepted is accepted once.
package backfill
