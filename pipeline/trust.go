package pipeline

// Trust is how far the code of a run is trusted. It is decided once, in the transaction that plans the
// run, kept for ever, and copied by a retry, never raised. It decides secrets, tokens and caches.
type Trust int

// The levels.
const (
	// TrustFork is code of another repository, or of somebody who may not push, that nobody approved.
	TrustFork Trust = iota
	// TrustApproved is such code after a person let this very run start.
	TrustApproved
	// TrustBranch is code in the target repository, pushed by somebody whose right to push is proven.
	TrustBranch
	// TrustProtected is code on the default branch, the commit proven to be inside it.
	TrustProtected
)

// String is the level's short name.
func (t Trust) String() string {
	switch t {
	case TrustFork:
		return "fork"
	case TrustApproved:
		return "approved"
	case TrustBranch:
		return "branch"
	case TrustProtected:
		return "protected"
	}
	return "unknown"
}

// Valid tells whether t is one of the levels.
func (t Trust) Valid() bool { return t >= TrustFork && t <= TrustProtected }

// Secrets tells whether a run at t may have the repository's secrets.
func (t Trust) Secrets() bool { return t >= TrustBranch && t.Valid() }

// Tokens tells whether a run at t may have an ID token.
func (t Trust) Tokens() bool { return t >= TrustBranch && t.Valid() }
