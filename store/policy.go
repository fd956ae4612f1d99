package store

import (
	"context"
	"fmt"
	"slices"

	"spindle/pipeline"
	"spindle/rbac"
)

// The sources of a role in the table members.
const (
	byConfig  = "config"
	byRecord  = "record"
	byCommand = "command"
)

// Gate is the gate of the policy last committed. It is cached until the policy changes.
func (s *Store) Gate(ctx context.Context) (*rbac.Gate, error) {
	want := s.policy.Load()
	if g := s.gate.Load(); g != nil && g.Version() == want {
		return g, nil
	}
	// Version and rules come from one statement, that is from one snapshot.
	rows, err := s.r.query(ctx, `SELECT st.policy_version, coalesce(r.v0, ''), coalesce(r.v1, ''), coalesce(r.v2, '')
		FROM state st LEFT JOIN casbin_rule r ON true WHERE st.id = 1`)
	if err != nil {
		return nil, fmt.Errorf("store: read the policy: %w", err)
	}
	version, rules, err := scanRules(rows)
	if err != nil {
		return nil, fmt.Errorf("store: read the policy: %w", damaged(err))
	}
	g, err := rbac.New(version, s.c.Admission, rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.gate.Store(g)
	return g, nil
}

type scanner interface {
	Next() bool
	Scan(...any) error
	Err() error
	Close() error
}

func scanRules(rows scanner) (version int64, rules []rbac.Rule, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var did, role, dom string
		if err := rows.Scan(&version, &did, &role, &dom); err != nil {
			return 0, nil, err
		}
		if did != "" {
			rules = append(rules, rbac.Grant(did, rbac.Role(role), dom))
		}
	}
	return version, rules, rows.Err()
}

// gate is the gate as of this transaction, its own changes included.
func (t *tx) gate() (*rbac.Gate, error) {
	var version int64
	if _, err := t.get("SELECT policy_version FROM state WHERE id = 1", nil, &version); err != nil {
		return nil, err
	}
	if t.w.gate != nil && t.w.gate.Version() == version {
		return t.w.gate, nil
	}
	rules, err := t.rules("")
	if err != nil {
		return nil, err
	}
	g, err := rbac.New(version, t.s.c.Admission, rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	t.w.gate = g
	return g, nil
}

// rules reads the policy rows of one domain, or of all for "".
func (t *tx) rules(domain string) ([]rbac.Rule, error) {
	rows, err := t.query("SELECT 0, v0, v1, v2 FROM casbin_rule WHERE ?1 = '' OR v2 = ?1", domain)
	if err != nil {
		return nil, err
	}
	_, rules, err := scanRules(rows)
	return rules, err
}

// bump gives the policy a new version, once for each write.
func (t *tx) bump() error {
	if t.repoliced {
		return nil
	}
	t.repoliced, t.rings = true, true
	if err := t.exec1("UPDATE state SET policy_version = policy_version + 1 WHERE id = 1"); err != nil {
		return err
	}
	_, err := t.get("SELECT policy_version FROM state WHERE id = 1", nil, &t.policy)
	return err
}

// grant and revoke write one policy row.
func (t *tx) grant(r rbac.Rule) error {
	n, err := t.exec("INSERT INTO casbin_rule (ptype, v0, v1, v2) VALUES ('g', ?, ?, ?) ON CONFLICT DO NOTHING", r.V[0], r.V[1], r.V[2])
	if err != nil || n == 0 {
		return err
	}
	return t.changed(r)
}

func (t *tx) revoke(r rbac.Rule) error {
	n, err := t.exec("DELETE FROM casbin_rule WHERE v0 = ? AND v1 = ? AND v2 = ?", r.V[0], r.V[1], r.V[2])
	if err != nil || n == 0 {
		return err
	}
	return t.changed(r)
}

func (t *tx) changed(r rbac.Rule) error {
	// A gate made earlier in this write no longer tells the truth.
	if t.repoliced {
		t.w.gate = nil
	}
	// What cannot be a rule must not reach the policy: the next gate would refuse all of it.
	if _, err := rbac.New(0, rbac.Closed, []rbac.Rule{r}); err != nil {
		return err
	}
	return t.bump()
}

// repolice makes the policy rows of a repository follow from the tables.
func (t *tx) repolice(repo string) error {
	dom := rbac.RepoDomain(repo)
	have, err := t.rules(dom)
	if err != nil {
		return err
	}
	want, err := t.repoRules(repo)
	if err != nil {
		return err
	}
	return t.swap(have, want)
}

func (t *tx) swap(have, want []rbac.Rule) error {
	key := func(r rbac.Rule) [3]string { return [3]string(r.V) }
	in := func(rs []rbac.Rule) map[[3]string]bool {
		m := make(map[[3]string]bool, len(rs))
		for _, r := range rs {
			m[key(r)] = true
		}
		return m
	}
	old, fresh := in(have), in(want)
	for _, r := range have {
		if !fresh[key(r)] {
			if err := t.revoke(r); err != nil {
				return err
			}
		}
	}
	for _, r := range want {
		if !old[key(r)] {
			if err := t.grant(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// repoRules is what the tables say of one repository, or of all for "".
func (t *tx) repoRules(repo string) ([]rbac.Rule, error) {
	rows, err := t.query(`SELECT 0, owner, 'owner', 'repo:' || did FROM repos WHERE gone = 0 AND (?1 = '' OR did = ?1)
		UNION ALL SELECT 0, c.did, 'collaborator', 'repo:' || c.repo FROM collaborators c JOIN repos r ON r.did = c.repo
		WHERE r.gone = 0 AND (?1 = '' OR c.repo = ?1)`, repo)
	if err != nil {
		return nil, err
	}
	_, rules, err := scanRules(rows)
	return rules, err
}

// setRole adds or removes one source of a spindle role and brings the policy in line.
func (t *tx) setRole(did string, role rbac.Role, source, by string, on bool) error {
	var err error
	if on {
		_, err = t.exec("INSERT INTO members (did, role, source, by, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			did, string(role), source, by, micros(t.now))
	} else {
		_, err = t.exec("DELETE FROM members WHERE did = ? AND role = ? AND source = ?", did, string(role), source)
	}
	if err != nil {
		return err
	}
	var one int
	held, err := t.get("SELECT 1 FROM members WHERE did = ? AND role = ? LIMIT 1", []any{did, string(role)}, &one)
	if err != nil {
		return err
	}
	if held {
		return t.grant(rbac.Grant(did, role, rbac.Spindle))
	}
	return t.revoke(rbac.Grant(did, role, rbac.Spindle))
}

// configure makes the roles that the configuration gives those of c.
func (t *tx) configure(c Config) error {
	want := map[string]rbac.Role{}
	for _, l := range []struct {
		role rbac.Role
		dids []string
	}{{rbac.Banned, c.Banned}, {rbac.Member, c.Members}, {rbac.Admin, c.Admins}, {rbac.Owner, []string{c.Owner}}} {
		for _, did := range l.dids {
			want[did] = l.role
		}
	}
	rows, err := t.query("SELECT 0, did, role, 'spindle' FROM members WHERE source = 'config'")
	if err != nil {
		return err
	}
	_, have, err := scanRules(rows)
	if err != nil {
		return err
	}
	for _, r := range have {
		if did, role := r.V[0], rbac.Role(r.V[1]); want[did] != role {
			if err := t.setRole(did, role, byConfig, "", false); err != nil {
				return err
			}
			if err := t.audit("spindle", "policy.unconfigured", did, string(role)); err != nil {
				return err
			}
		}
	}
	if err := t.endGrants(); err != nil {
		return err
	}
	for did, role := range want {
		if slices.ContainsFunc(have, func(r rbac.Rule) bool { return r.V[0] == did && r.V[1] == string(role) }) {
			continue
		}
		if err := t.setRole(did, role, byConfig, "spindle", true); err != nil {
			return fmt.Errorf("configured %s: %w", role, err)
		}
		if err := t.audit("spindle", "policy.configured", did, string(role)); err != nil {
			return err
		}
		if role == rbac.Banned {
			if err := t.endBanned(did, "spindle"); err != nil {
				return err
			}
		}
	}
	return nil
}

// repairPolicy makes the policy follow from the tables. A difference can only come from outside this package;
// it is mended towards the tables and leaves a line in the audit trail.
func (t *tx) repairPolicy() error {
	have, err := t.rules("")
	if err != nil {
		return err
	}
	want, err := t.repoRules("")
	if err != nil {
		return err
	}
	rows, err := t.query("SELECT DISTINCT 0, did, role, 'spindle' FROM members")
	if err != nil {
		return err
	}
	_, members, err := scanRules(rows)
	if err != nil {
		return err
	}
	paused, err := t.accountRules()
	if err != nil {
		return err
	}
	before := t.repoliced
	t.repoliced = false
	if err := t.swap(have, append(append(want, members...), paused...)); err != nil {
		return err
	}
	if t.repoliced {
		t.s.log.Error("the policy did not follow from the tables and was mended", "version", t.policy)
		if err := t.audit("spindle", "policy.repaired", "casbin_rule", ""); err != nil {
			return err
		}
	}
	t.repoliced = t.repoliced || before
	_, err = t.get("SELECT policy_version FROM state WHERE id = 1", nil, &t.policy)
	if err == nil {
		t.repoliced = true // so that the version is published with the commit
	}
	return err
}

// Allow puts did on the allow-list; Disallow takes it off unless a record of the owner keeps it there.
func (s *Store) Allow(ctx context.Context, did, by string) error {
	return s.command(ctx, "allow", did, by, rbac.Member, true)
}

// Disallow undoes Allow.
func (s *Store) Disallow(ctx context.Context, did, by string) error {
	return s.command(ctx, "disallow", did, by, rbac.Member, false)
}

// Ban refuses everything to an account or a repository. What waits for it ends as refused in the same
// transaction, and what runs is asked to end. The owner and the admins cannot be banned (ErrConflict).
func (s *Store) Ban(ctx context.Context, did, by string) error {
	return s.command(ctx, "ban", did, by, rbac.Banned, true)
}

// Unban undoes Ban. What the ban ended stays ended.
func (s *Store) Unban(ctx context.Context, did, by string) error {
	return s.command(ctx, "unban", did, by, rbac.Banned, false)
}

func (s *Store) command(ctx context.Context, verb, did, by string, role rbac.Role, on bool) error {
	return s.write(ctx, verb+" "+did, func(t *tx) error {
		if role == rbac.Banned && on {
			var one int
			is, err := t.get("SELECT 1 FROM members WHERE did = ? AND role IN ('owner', 'admin') LIMIT 1", []any{did}, &one)
			if err != nil {
				return err
			}
			if is {
				return fmt.Errorf("%w: the spindle's owner and admins cannot be banned; change the configuration first", ErrConflict)
			}
		}
		if err := t.setRole(did, role, byCommand, by, on); err != nil {
			return err
		}
		if err := t.audit(by, "policy."+verb, did, ""); err != nil {
			return err
		}
		if role != rbac.Banned || !on {
			return nil
		}
		return t.endBanned(did, by)
	})
}

// endBanned ends what waits and runs for an account or a repository that was banned.
func (t *tx) endBanned(did, by string) error {
	ws, err := t.refs(`SELECT pipeline, name FROM workflows WHERE status IN ('waiting', 'held', 'preparing', 'running')
		AND (owner = ?1 OR repo = ?1)`, did)
	if err != nil {
		return err
	}
	return t.cancelAll(ws, pipeline.CancelAsked{By: by, As: pipeline.Refused, Reason: did + " was banned from this spindle"})
}
