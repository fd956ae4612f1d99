package rbac

// Rule is one row of casbin policy. Roles are rows of type "g" with the values DID, role, domain.
type Rule struct {
	PType string
	V     []string
}

// Grant is the rule that gives role to did in domain.
func Grant(did string, role Role, domain string) Rule {
	return Rule{PType: "g", V: []string{did, string(role), domain}}
}

// Admission is whom the spindle serves.
type Admission string

// Closed serves the owner, admins and members. Open serves everybody who is not banned.
const (
	Closed Admission = "closed"
	Open   Admission = "open"
)

// Role is what an account is in a domain.
type Role string

// The roles. Owner means the spindle's owner in the domain Spindle and the repository's in a repository's
// domain; Admin, Member and Banned exist in Spindle only, Collaborator in repositories only.
const (
	Owner        Role = "owner"
	Admin        Role = "admin"
	Member       Role = "member"
	Banned       Role = "banned"
	Collaborator Role = "collaborator"

	// What follows is not given to anybody but found out about an account: it is not active, so it may do
	// nothing until it is again. The words are those of com.atproto.sync.getRepoStatus; Unavailable stands
	// for every other one. They exist in Spindle only, and an account has at most one.
	Takendown   Role = "takendown"
	Suspended   Role = "suspended"
	Deactivated Role = "deactivated"
	Deleted     Role = "deleted"
	Unavailable Role = "unavailable"

	// anyone is held by every account while admission is open.
	anyone Role = "anyone"
)

// Inactive lists the roles that say why an account is not active.
func Inactive() []Role { return []Role{Takendown, Suspended, Deactivated, Deleted, Unavailable} }

// Spindle is the domain of roles that hold for the whole server.
const Spindle = "spindle"

// RepoDomain is the domain of the repository with the given DID.
func RepoDomain(did string) string { return "repo:" + did }

// Action is what somebody wants to do.
type Action string

// The actions.
const (
	// Admit is to have one's repositories served.
	Admit Action = "admit"
	// Push is to start work in a repository: push, manual run, retry.
	Push Action = "push"
	// Approve is to let a held run start.
	Approve Action = "approve"
	// Cancel is to end a run.
	Cancel Action = "cancel"
	// Secrets is to set, list and delete a repository's secrets.
	Secrets Action = "secrets"
	// Administer is to allow, ban and look after the spindle itself.
	Administer Action = "administer"
	// Read is to see what is not public of a repository.
	Read Action = "read"
)

// Repo names a repository and its owner, both by DID.
type Repo struct{ DID, Owner string }

// Code says why something was refused. The list is closed.
type Code = string

// The codes.
const (
	CodeNotAllowed      Code = "NotAllowed"      // the owner is not served here
	CodeBanned          Code = "Banned"          // the actor, the repository or its owner is banned
	CodePaused          Code = "Paused"          // the actor may, but the repository is not served at present
	CodeNotCollaborator Code = "NotCollaborator" // the actor has no such right in the repository
	CodeNotAdmin        Code = "NotAdmin"        // the actor does not run this spindle
	CodeOwnerChanged    Code = "OwnerChanged"    // the repository has another owner by now
	CodeInvalidActor    Code = "InvalidActor"    // the actor is no DID
	CodeInactive        Code = "Inactive"        // the account of the actor or of the repository's owner is not active
)

// Decision is an answer. Code and Sentence are empty when Allowed.
type Decision struct {
	Allowed bool
	Code    Code
	// Sentence says what was refused, why, and who can change it.
	Sentence string
}
