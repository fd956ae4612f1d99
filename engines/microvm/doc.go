// Package microvm owns the engine that gives every attempt a virtual machine of its own.
//
// It owns images (a kernel, an initial file system and a root disk under a name), the boot and the end of one
// machine per attempt, and the channel on which an agent inside the machine takes commands and sends output
// back. Commands run as the user spindle-workflow in /workspace/repo, as in the sandbox.
//
// It refuses images that are not under its own folder, a device or folder of the server shown writable, and
// a processor that offers virtualization but cannot boot a machine within a time limit: what a machine can do is
// found by doing it once, never by asking whether a device exists.
//
// Invariants: one machine runs one attempt and is destroyed after it; the agent is outside the trust of the
// server, so that every message from it is bounded; an attempt's machine never outlives its lease.
//
// Data comes from the runner (Spec, Command) and from the folder of images; it goes to the runner as output and
// Results. The contract is in package engines.
package microvm
