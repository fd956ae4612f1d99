// Package flock keeps a second process away from what one process at a time may work on, with a lock on a file
// (flock(2)).
//
// It owns the lock and the line in its file that says who holds it. It does not decide what to do about a lock that is
// held. It starts no goroutine and never waits.
package flock
