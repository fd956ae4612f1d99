// Package store owns the one SQLite file in which everything durable of a spindle lives, except log bytes and
// blobs. It is the only package with SQL.
//
// # Data
//
// Effects of proven records, accepted triggers and cursors come in from ingest (Accept), plans from trigger
// (Enqueue), leases and results from queue and runner (Claim, Renew, Apply, StartStep, EndStep), wishes of
// people from xrpc (Approve, Cancel, Ban). Out go pipelines, numbered changes (Changes, Changed) and the Gate
// of package rbac. Rows of policy are written in the transaction of the record, repository or command that
// they follow from.
//
// # Writing
//
// One goroutine owns the only writable connection. It takes what has queued up, runs each write in its own
// savepoint inside one transaction, commits with synchronous=FULL, and answers the callers only then. A write
// that fails rolls back alone. Reads use their own read-only connections and never wait for a writer.
//
// # Invariants
//
//   - An accepted trigger is durable before the caller hears of it, and has one pipeline or one visible reason.
//   - A trigger key names one trigger for ever; the same key with another meaning is refused.
//   - Admission is decided again inside the transactions that plan work, start it and release secrets.
//   - A terminal status never changes and a cursor never moves back: triggers in the database enforce both.
//   - Whatever carries an epoch that is not the current one is refused with ErrStale.
//   - Change numbers grow in the order of commits, without a reader ever seeing a later one first.
//   - Secrets are stored sealed and belong to one owner epoch; a new owner of a repository sees none of them.
//   - The audit table only grows, and each row carries a keyed hash over the one before it.
//
// It refuses to start beside another instance (ErrLocked), on a newer schema (ErrNewer) and on a damaged file
// (ErrCorrupt). Times are microseconds UTC from the configured clock; SQL's own time functions are not used.
package store
