// Package runner takes one leased workflow through an engine: secrets and token, checkout, steps in order,
// output into the log, result. The same code serves the server, a remote machine and a run on the desk.
//
// It owns nothing that lasts. It reads the compiled spec that the lease carries and never a file of the
// repository, so what was approved is what runs. Order is the invariant: output bytes are in the log before
// the status that they explain, the log is synced and closed before the attempt is reported finished, and
// the machine is gone before the seat is given back. Every fact carries the lease's epoch; once the store
// says that the lease is stale, nothing more is told.
//
// Whatever goes wrong, an attempt ends with a status and a sentence: an engine that panics, a log that cannot
// be written, a machine that does not end. Failed is the person's command, Error everything else.
//
// Secrets go only to runs whose trust allows them (pipeline.Trust.Secrets); that they were handed out is
// written down first, so that a restart does not run such an attempt twice unasked.
package runner
