// Package rbac answers one question: may this account do this here, and if not, why not.
//
// It owns the casbin model, the permissions of each role, and Gate, an immutable snapshot of who holds
// which role. It refuses to do anything else: it reads no database and no network. The rules come from the
// store, which writes them in the transaction of the record, repository or command they follow from; the
// answers go to the doors (xrpc, ingest) and, a second time, into the transactions that plan and start work.
//
// Invariants:
//   - A subject is a DID that parses, compared byte for byte. Nothing is matched by pattern.
//   - What no permission allows is denied.
//   - A ban wins over every role, of the actor, of the repository and of its owner.
//   - An account that its host does not call active may do nothing, and what it owns is paused.
//   - Permissions are code and roles are data: no row in a database can widen what a role may do.
//   - Every refusal has a code of a closed list and a sentence that says who can change it.
package rbac
