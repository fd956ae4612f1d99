package rbac

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
	casbinrbac "github.com/casbin/casbin/v2/rbac"
	defaultrolemanager "github.com/casbin/casbin/v2/rbac/default-role-manager"
)

// grant is one held role.
type grant struct {
	did    string
	role   Role
	domain string
}

// roles is the role manager that casbin asks. It is filled once and then only read, which is why a Gate is
// cheap to rebuild and needs no lock; casbin's own manager builds a graph for every domain.
type roles struct {
	casbinrbac.RoleManager // what casbin may call beside HasLink
	admission              Admission
	held                   map[grant]bool
	owner                  map[string]string // repository domain -> owner
	inactive               map[string]Role   // account -> why it is not active
	known                  map[string]bool   // accounts that hold a role, and repositories
}

func newRoles(adm Admission, rules []Rule) (*roles, error) {
	rs := &roles{
		RoleManager: defaultrolemanager.NewRoleManager(1),
		admission:   adm,
		held:        make(map[grant]bool, len(rules)),
		owner:       map[string]string{},
		inactive:    map[string]Role{},
		known:       map[string]bool{},
	}
	for _, r := range rules {
		g, err := parse(r)
		if err != nil {
			return nil, err
		}
		if g.role == Owner && g.domain != Spindle {
			if had := rs.owner[g.domain]; had != "" && had != g.did {
				return nil, fmt.Errorf("rbac: %s has two owners, %s and %s", g.domain, had, g.did)
			}
			rs.owner[g.domain] = g.did
		}
		if slices.Contains(Inactive(), g.role) {
			rs.inactive[g.did] = g.role
		}
		rs.known[g.did] = true
		if repo, ok := strings.CutPrefix(g.domain, "repo:"); ok {
			rs.known[repo] = true
		}
		rs.held[g] = true
	}
	return rs, nil
}

func parse(r Rule) (grant, error) {
	if r.PType != "g" || len(r.V) != 3 {
		return grant{}, fmt.Errorf("rbac: rule %q %q is no grant of a role", r.PType, r.V)
	}
	g := grant{did: r.V[0], role: Role(r.V[1]), domain: r.V[2]}
	if _, err := syntax.ParseDID(g.did); err != nil {
		return grant{}, fmt.Errorf("rbac: the subject %q of a rule is no DID: %w", clip(g.did), err)
	}
	repo, inRepo := strings.CutPrefix(g.domain, "repo:")
	known := false
	switch {
	case inRepo:
		if _, err := syntax.ParseDID(repo); err != nil {
			return grant{}, fmt.Errorf("rbac: the domain %q of a rule names no repository: %w", clip(g.domain), err)
		}
		known = g.role == Owner || g.role == Collaborator
	case g.domain == Spindle:
		known = g.role == Owner || g.role == Admin || g.role == Member || g.role == Banned || slices.Contains(Inactive(), g.role)
	}
	if !known {
		return grant{}, fmt.Errorf("rbac: no role %q in domain %q", clip(r.V[1]), clip(g.domain))
	}
	return g, nil
}

func (rs *roles) holds(did string, role Role, domain string) bool {
	return rs.held[grant{did, role, domain}]
}

// HasLink implements casbin's role manager: a subject holds a role in a domain exactly if a rule says so.
func (rs *roles) HasLink(sub, role string, domain ...string) (bool, error) {
	if len(domain) != 1 {
		return false, nil
	}
	if Role(role) == anyone {
		return rs.admission == Open && domain[0] == Spindle, nil
	}
	return rs.holds(sub, Role(role), domain[0]), nil
}
