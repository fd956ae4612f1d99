package rbac

import (
	"fmt"
	"slices"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
)

// modelText is the casbin model. A permission says in which domain its role must be held: in the spindle,
// or in the repository that the request is about. Everything is compared for equality.
const modelText = `
[request_definition]
r = sub, dom, obj, act

[policy_definition]
p = sub, dom, obj, act, eft

[role_definition]
g = _, _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = r.act == p.act && r.obj == p.obj && ((p.dom == "spindle" && g(r.sub, p.sub, "spindle")) || (p.dom == "repo" && g(r.sub, p.sub, r.dom)))
`

// The domains of permissions and the objects of requests.
const (
	inSpindle = "spindle"
	inRepo    = "repo"
)

// permission lets role, held in the domain in, do acts to the object obj.
type permission struct {
	role    Role
	in, obj string
	acts    []Action
}

var repoActions = []Action{Push, Approve, Cancel, Secrets, Read}

// permissions is what each role may do. It is read, never changed.
func permissions() []permission {
	return []permission{
		{Owner, inSpindle, inSpindle, []Action{Admit, Administer}},
		{Admin, inSpindle, inSpindle, []Action{Admit, Administer}},
		{Member, inSpindle, inSpindle, []Action{Admit}},
		{anyone, inSpindle, inSpindle, []Action{Admit}},
		{Owner, inSpindle, inRepo, []Action{Cancel, Read}},
		{Admin, inSpindle, inRepo, []Action{Cancel, Read}},
		{Owner, inRepo, inRepo, repoActions},
		{Collaborator, inRepo, inRepo, repoActions},
	}
}

// Gate decides over one snapshot of the rules. It never changes and is safe for concurrent use.
type Gate struct {
	version   int64
	admission Admission
	roles     *roles
	enforcer  *casbin.Enforcer
}

// New returns the gate of policy version version over rules. It refuses rules that are not grants of a known
// role to a DID in a domain where the role exists: such a row means that the policy was changed behind the
// store's back.
func New(version int64, adm Admission, rules []Rule) (*Gate, error) {
	if adm != Closed && adm != Open {
		return nil, fmt.Errorf("rbac: admission is %q, want %q or %q", adm, Closed, Open)
	}
	rs, err := newRoles(adm, rules)
	if err != nil {
		return nil, err
	}
	m, err := model.NewModelFromString(modelText)
	if err != nil {
		return nil, fmt.Errorf("rbac: parse the model: %w", err)
	}
	for _, p := range permissions() {
		for _, a := range p.acts {
			if err := m.AddPolicy("p", "p", []string{string(p.role), p.in, p.obj, string(a), "allow"}); err != nil {
				return nil, fmt.Errorf("rbac: add a permission: %w", err)
			}
		}
	}
	for _, obj := range []string{inSpindle, inRepo} {
		for _, a := range append([]Action{Admit, Administer}, repoActions...) {
			if err := m.AddPolicy("p", "p", []string{string(Banned), inSpindle, obj, string(a), "deny"}); err != nil {
				return nil, fmt.Errorf("rbac: add the ban: %w", err)
			}
		}
	}
	e, err := casbin.NewEnforcer(m)
	if err != nil {
		return nil, fmt.Errorf("rbac: make the enforcer: %w", err)
	}
	e.EnableAutoBuildRoleLinks(false)
	if m["g"]["g"] == nil {
		return nil, fmt.Errorf("rbac: the model has no roles")
	}
	m["g"]["g"].RM = rs
	return &Gate{version: version, admission: adm, roles: rs, enforcer: e}, nil
}

// Version is the policy version that the gate was built from.
func (g *Gate) Version() int64 { return g.version }

// Admit tells whether the repository is served here: neither it nor its owner is banned, and the owner is
// one whom admission lets in. An owner that the rules contradict is refused.
func (g *Gate) Admit(repo Repo) Decision {
	for _, did := range []string{repo.Owner, repo.DID} {
		if _, err := syntax.ParseDID(did); err != nil {
			return refuse(CodeInvalidActor, "a repository and its owner are named by DID, got %q; the caller must send one", clip(did))
		}
		if g.roles.holds(did, Banned, Spindle) {
			return refuse(CodeBanned, "%s is banned from this spindle; only the spindle's owner can lift that", did)
		}
	}
	for _, did := range []string{repo.Owner, repo.DID} {
		if why, ok := g.Inactive(did); ok {
			return refuse(CodeInactive, "repository %s is paused: the account %s is %s; it runs again when its host says that the account is active", repo.DID, did, words(why))
		}
	}
	if now := g.roles.owner[RepoDomain(repo.DID)]; now != "" && now != repo.Owner {
		return refuse(CodeOwnerChanged, "repository %s belongs to %s now and no longer to %s; its new owner can push again", repo.DID, now, repo.Owner)
	}
	if !g.enforce(repo.Owner, Spindle, inSpindle, Admit) {
		return refuse(CodeNotAllowed, "this spindle runs pipelines only for people whom its owner allows, and %s is not one; the spindle's owner can add it to SPINDLE_SERVER_MEMBERS", repo.Owner)
	}
	return Decision{Allowed: true}
}

// May tells whether actor may do a to repo. For Administer the repository does not matter. Push and Approve
// start work and therefore also need a repository that is served.
func (g *Gate) May(actor string, a Action, repo Repo) Decision {
	if _, err := syntax.ParseDID(actor); err != nil {
		return refuse(CodeInvalidActor, "%q is no DID; the caller must sign in as an account", clip(actor))
	}
	if g.roles.holds(actor, Banned, Spindle) {
		return refuse(CodeBanned, "%s is banned from this spindle; only the spindle's owner can lift that", actor)
	}
	if why, ok := g.Inactive(actor); ok {
		return refuse(CodeInactive, "the account %s is %s and may do nothing here until its host says that it is active again", actor, words(why))
	}
	switch a {
	case Administer:
		if !g.enforce(actor, Spindle, inSpindle, a) {
			return refuse(CodeNotAdmin, "only the owner and the admins of this spindle may do that, and %s is neither; the spindle's owner can add an admin", actor)
		}
		return Decision{Allowed: true}
	case Admit:
		return g.Admit(Repo{DID: repo.DID, Owner: actor})
	}
	if !g.enforce(actor, RepoDomain(repo.DID), inRepo, a) {
		return refuse(CodeNotCollaborator, "%s may not %s in repository %s: it is neither its owner nor a collaborator; the repository's owner can add it as a collaborator", actor, a.words(), repo.DID)
	}
	if a == Push || a == Approve {
		if d := g.Admit(repo); !d.Allowed {
			if d.Code == CodeNotAllowed {
				d = refuse(CodePaused, "repository %s is paused: its owner %s is not served by this spindle at present; the spindle's owner can add it to SPINDLE_SERVER_MEMBERS", repo.DID, repo.Owner)
			}
			return d
		}
	}
	return Decision{Allowed: true}
}

// Tracked lists, sorted, the accounts whose records matter: the spindle's owner, admins and members, and the
// owners of the repositories known here.
func (g *Gate) Tracked() []string {
	seen := map[string]bool{}
	for k := range g.roles.held {
		if k.role == Owner || k.role == Admin || k.role == Member {
			seen[k.did] = true
		}
	}
	out := make([]string, 0, len(seen))
	for did := range seen {
		out = append(out, did)
	}
	slices.Sort(out)
	return out
}

// Inactive tells why the account did is not active, and false for one that is, as far as is known.
func (g *Gate) Inactive(did string) (Role, bool) {
	why, ok := g.roles.inactive[did]
	return why, ok
}

// Knows tells whether did is an account that holds a role here, or a repository that is served.
func (g *Gate) Knows(did string) bool { return g.roles.known[did] }

// words is a status of an account within a sentence.
func words(why Role) string {
	switch why {
	case Takendown:
		return "taken down by its host"
	case Suspended:
		return "suspended by its host"
	case Deactivated:
		return "deactivated by its owner"
	case Deleted:
		return "deleted"
	}
	return "not active at its host"
}

func (g *Gate) enforce(sub, dom, obj string, a Action) bool {
	// An error can only be a fault of the model; deny by default covers it.
	ok, err := g.enforcer.Enforce(sub, dom, obj, string(a))
	return err == nil && ok
}

func (a Action) words() string {
	switch a {
	case Push:
		return "start pipelines"
	case Approve:
		return "approve runs"
	case Cancel:
		return "cancel runs"
	case Secrets:
		return "manage secrets"
	case Read:
		return "read"
	}
	return "do that"
}

func refuse(c Code, format string, args ...any) Decision {
	return Decision{Code: c, Sentence: fmt.Sprintf(format, args...)}
}

// clip bounds text of unknown origin for a sentence.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80]
	}
	return s
}
