// Package fleet owns the wire between a mill and its executors, on NATS JetStream: embedded in the mill, or a
// cluster that exists already.
//
// A lease, its renewals, the facts of an attempt and its log travel over it; every message carries the
// lease's epoch, and what comes with an older one is refused by the store like a local fact. Delivery is at
// least once, so every message is idempotent. The runner at the other end is the same code that the server
// runs itself.
package fleet
