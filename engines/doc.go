// Package engines holds the contract between the runner and the places where an attempt can run.
//
// An Engine opens Attempts. An attempt is one private machine for one execution of one workflow: its
// commands run in order inside it, see the files that earlier commands left, and see nothing of other
// attempts. Engines live in the folders below: sandbox, microvm and dummy. What every engine must do is
// written as tests in enginetest, and an engine is one that passes them.
//
// The package owns the words of the contract and no state. It refuses to know what a workflow, a
// repository or a secret is: the runner turns those into commands, mounts and variables.
//
// Invariants that every engine keeps:
//
//   - Mounts are read-only for the code of an attempt. An attempt never writes to the server's files.
//   - What a command writes is delivered while it runs, stdout and stderr apart, unchanged.
//   - When a command is stopped (timeout, cancel, Close) every process that it started is gone, whatever
//     session it moved to and whatever signals it ignores, before Run returns.
//   - An attempt that was stopped this way is over: later commands are refused with ErrOver.
//   - A command's non-zero exit is a Result. An error is a fault of the machinery, never of the job.
//   - The public sentence of an Error names no path, address or account of the server.
//
// Data comes from the runner (a Spec and Commands) and goes back to it (bytes and Results).
package engines
