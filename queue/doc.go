// Package queue turns waiting workflows into leases and keeps the leases alive.
//
// What runs next is decided by the store in one transaction (fewest running per owner first, then age,
// among what the engines and labels here fit). This package owns the seats of one process: it claims while
// a seat is free, hands the claim to an executor, renews the lease while the executor works, and ends the
// executor's context when the workflow was cancelled or the lease is lost. It never decides what a result
// means: that is the executor's to report and pipeline.Apply's to judge.
//
// Invariants: never more than Seats executors at a time; one executor for one lease; a claim that was made is
// executed or handed back, also when the process is stopping; an executor whose lease can no longer be renewed
// is ended while the lease still holds; a cancel reaches its executor without waiting for a renewal, whenever
// after the claim it was asked for.
//
// Waking: a dispatcher takes the store's wake-up before it looks for work, and looks again at least every
// idle period, so a lost wake-up costs a delay and never a job.
package queue
