// Package backfill owns finding what ingest missed: at the start, after a gap in a stream, when somebody new is
// followed, and now and then.
//
// It has two halves. Readings take the records of every followed account as a whole: the signed repo is fetched from
// its PDS, verified in full, and what it holds and what it no longer holds goes through the same code as live hints.
// Looks compare the refs of every served repository at its knot with where they are believed to be; a ref that is
// elsewhere becomes a push that is marked late.
//
//	wanted -> fetching -> applying -> done
//	   ^         |            |
//	   |         +-> waiting (until, reason) or refused (reason)
//	   +---- a wish, a start, the time of a waiting one
//
// It never writes an effect of its own, so a replayed record and a live one cannot come out differently, whatever the
// order: each record carries the revision that it is true at, the store keeps the highest and the absences, and a
// trigger has one key however it was found. The state of a reading is committed together with its effects, so that a
// kill at any point leads to the same tables. Who is followed is read in one transaction, whole or not at all.
//
// It refuses repos that do not verify, those above the limits (their records are then proven one by one), hosts that
// go back to an older revision, and lists that do not end. Old records start nothing: a trigger found by a reading
// must be newer than the first start of all, than the first look at its repository, and than a set age.
//
// Nothing here is told by one host alone that could cost another's work: places at a host are few, a host that asks
// for a rest gets it for all accounts, and what fails is tried again later, with a growing and random wait.
package backfill
