// Package pipeline holds the words of the product and the state machine that they live by.
//
// A Trigger is one normalized reason to run. It starts a Pipeline, which holds one Workflow for every
// file (or matrix cell) that matched. A workflow is executed in Attempts, each with an epoch, and an
// attempt runs Steps in order.
//
// The package is pure: no goroutine, no clock, no storage. Apply takes a workflow and a fact and returns
// the workflow after it; the store writes the result in one transaction with a change number. States:
//
//	           +--Approved--+                      +--Requeued-----------------------------+
//	           |            v                      v                                       |
//	(born) --> held      waiting --Leased--> preparing --StepBegan--> running --Finished--> passed | failed |
//	  |         |            |                     |                     |                  error | timeout | cancelled
//	  |         +--Expired---+--Cancelled, Superseded, Refused----------+ (a running one first shows CancelAsked)
//	  +--> invalid, skipped, refused  (terminal from birth)
//
// Invariants: a terminal status never changes; an epoch only grows; a fact that carries an older epoch
// is refused with ErrStale; whatever ends a workflow says why in one sentence.
package pipeline
