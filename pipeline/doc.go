// Package pipeline holds the words of the product and the state machine that they live by.
//
// A Trigger is one normalized reason to run. It starts a Pipeline, which holds one Workflow for every
// file (or matrix cell) that matched. A workflow is executed in Attempts, each with an epoch, and an
// attempt runs Steps in order.
//
// The package is pure: no goroutine, no clock, no storage. Apply takes a workflow and a fact and returns
// the workflow after it; the store writes the result in one transaction with a change number. States:
//
//	                                         +-----------Lost, again------------+
//	                                         v                                  |
//	(born) --> held --Approved--> waiting --Leased--> preparing --Began--> running
//	  |          |                   |                    |                   |
//	  |          +----CancelAsked----+                    +-------------------+
//	  |                    |                              |                   |
//	  |                    v                       Finished, in any        Lost, for good
//	  |     cancelled | superseded |               of its five ends           |
//	  |     refused | expired                             |                   v
//	  |                                                   v            error, or cancelled
//	  |                                  passed | failed | error |     where that was asked for
//	  |                                  timeout | cancelled
//	  +--> invalid, skipped, refused  (ended from birth)
//
// What is preparing or running and is asked to end stays as it is, and its runner is told (CancelBy); it ends
// with what the runner reports, or as cancelled when the runner is lost.
//
// Invariants: a terminal status never changes; an epoch only grows; a fact that carries an older epoch
// is refused with ErrStale; whatever ends a workflow, other than having passed, says why in one sentence.
package pipeline
