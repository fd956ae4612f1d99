package rbac

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	boss  = "did:plc:bossbossbossbossbossboss"
	alice = "did:plc:alicealicealicealiceali2"
	bob   = "did:plc:bobbobbobbobbobbobbobbo2"
	carol = "did:web:carol.example"
	repoA = "did:plc:repoarepoarepoarepoarep2"
	repoB = "did:plc:repobrepobrepobrepobrep2"
)

var everyAction = []Action{Admit, Push, Approve, Cancel, Secrets, Administer, Read, "fly"}

// reference is the policy as a person would say it, without casbin.
type reference struct {
	open    bool
	spindle map[string]map[Role]bool // DID -> roles
	owner   map[string]string        // repo -> DID
	helpers map[string]map[string]bool
}

func (m reference) banned(did string) bool { return m.spindle[did][Banned] }

func (m reference) inactive(did string) bool {
	for _, why := range Inactive() {
		if m.spindle[did][why] {
			return true
		}
	}
	return false
}

func (m reference) admits(r Repo) bool {
	if m.banned(r.Owner) || m.banned(r.DID) || m.inactive(r.Owner) || m.inactive(r.DID) || (m.owner[r.DID] != "" && m.owner[r.DID] != r.Owner) {
		return false
	}
	s := m.spindle[r.Owner]
	return m.open || s[Owner] || s[Admin] || s[Member]
}

func (m reference) may(actor string, a Action, r Repo) bool {
	if m.banned(actor) || m.inactive(actor) {
		return false
	}
	runs := m.spindle[actor][Owner] || m.spindle[actor][Admin]
	inRepo := m.owner[r.DID] == actor || m.helpers[r.DID][actor]
	switch a {
	case Admit:
		return m.admits(Repo{DID: r.DID, Owner: actor})
	case Administer:
		return runs
	case Push, Approve:
		return inRepo && m.admits(r)
	case Cancel, Read:
		return inRepo || runs
	case Secrets:
		return inRepo
	}
	return false
}

func TestT11GateEqualsTheReferenceModel(t *testing.T) {
	t.Parallel()
	dids := []string{boss, alice, bob, carol}
	repos := []string{repoA, repoB}
	rapid.Check(t, func(t *rapid.T) {
		m := reference{spindle: map[string]map[Role]bool{}, owner: map[string]string{}, helpers: map[string]map[string]bool{}}
		var rules []Rule
		m.open = rapid.Bool().Draw(t, "open")
		for _, d := range append(slices.Clone(dids), repos...) {
			m.spindle[d] = map[Role]bool{}
			for _, r := range []Role{Owner, Admin, Member, Banned, Suspended} {
				if rapid.IntRange(0, 4).Draw(t, "holds") == 0 {
					m.spindle[d][r] = true
					rules = append(rules, Grant(d, r, Spindle))
				}
			}
		}
		for _, r := range repos {
			m.helpers[r] = map[string]bool{}
			if o := rapid.SampledFrom(append(slices.Clone(dids), "")).Draw(t, "owner"); o != "" {
				m.owner[r] = o
				rules = append(rules, Grant(o, Owner, RepoDomain(r)))
			}
			for _, d := range dids {
				if rapid.IntRange(0, 3).Draw(t, "helps") == 0 {
					m.helpers[r][d] = true
					rules = append(rules, Grant(d, Collaborator, RepoDomain(r)))
				}
			}
		}
		adm := Closed
		if m.open {
			adm = Open
		}
		g, err := New(7, adm, rules)
		require.NoError(t, err)
		require.Equal(t, int64(7), g.Version())
		for _, r := range repos {
			for _, o := range []string{rapid.SampledFrom(dids).Draw(t, "claimed owner")} {
				repo := Repo{DID: r, Owner: o}
				check(t, m.admits(repo), g.Admit(repo), "admit %v", repo)
				for _, who := range dids {
					for _, a := range everyAction {
						check(t, m.may(who, a, repo), g.May(who, a, repo), "%s %s %v", who, a, repo)
					}
				}
			}
		}
	})
}

func check(t *rapid.T, want bool, d Decision, format string, args ...any) {
	if d.Allowed != want {
		t.Fatalf("%s: got %+v, want %v", fmt.Sprintf(format, args...), d, want)
	}
	if d.Allowed != (d.Code == "") || d.Allowed != (d.Sentence == "") {
		t.Fatalf("%s: a refusal needs a code and a sentence, a consent has none: %+v", fmt.Sprintf(format, args...), d)
	}
}

// A rule that the store never writes means a changed policy and must not pass.
func TestT11StrangeRulesAreRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Rule{
		{PType: "p", V: []string{"member", "spindle", "spindle", "administer"}},
		{PType: "g", V: []string{"*", "owner", Spindle}},
		{PType: "g", V: []string{"did:plc:*", "owner", Spindle}},
		{PType: "g", V: []string{alice, "owner"}},
		{PType: "g", V: []string{alice, "collaborator", Spindle}},
		{PType: "g", V: []string{alice, "admin", RepoDomain(repoA)}},
		{PType: "g", V: []string{alice, "owner", "repo:*"}},
		{PType: "g", V: []string{alice, "anyone", Spindle}},
		{PType: "g", V: []string{alice + " ", "owner", Spindle}},
		{PType: "g", V: []string{"owner", "owner", Spindle}},
	} {
		_, err := New(1, Open, []Rule{r})
		require.Error(t, err, "%v", r)
	}
	_, err := New(1, Open, []Rule{Grant(alice, Owner, RepoDomain(repoA)), Grant(bob, Owner, RepoDomain(repoA))})
	require.ErrorContains(t, err, "two owners")
	_, err = New(1, "ajar", nil)
	require.Error(t, err)
}

// Role names and other spellings are no subjects.
func TestT11SubjectsAreDIDs(t *testing.T) {
	t.Parallel()
	g, err := New(1, Closed, []Rule{Grant(boss, Owner, Spindle), Grant(alice, Member, Spindle), Grant(alice, Owner, RepoDomain(repoA))})
	require.NoError(t, err)
	repo := Repo{DID: repoA, Owner: alice}
	for _, who := range []string{"", "owner", "admin", "*", "did:plc:*", "DID:PLC:BOSS", boss + "x ", " " + boss, "did:plc:" + string(make([]byte, 4000))} {
		for _, a := range everyAction {
			d := g.May(who, a, repo)
			require.False(t, d.Allowed, "%q %s", who, a)
			require.Less(t, len(d.Sentence), 500)
		}
	}
	require.False(t, g.May("did:web:boss.example", Administer, repo).Allowed)
	require.Equal(t, []string{alice, boss}, g.Tracked())
}

func TestRefusalsSayWhy(t *testing.T) {
	t.Parallel()
	g, err := New(1, Closed, []Rule{Grant(boss, Owner, Spindle), Grant(bob, Banned, Spindle), Grant(alice, Owner, RepoDomain(repoA)), Grant(bob, Collaborator, RepoDomain(repoA))})
	require.NoError(t, err)
	a := Repo{DID: repoA, Owner: alice}
	require.Equal(t, CodeNotAllowed, g.Admit(a).Code)
	require.Contains(t, g.Admit(a).Sentence, alice+" is not one; the spindle's owner can add it to SPINDLE_SERVER_MEMBERS")
	require.Equal(t, CodePaused, g.May(alice, Push, a).Code)
	require.Equal(t, CodeBanned, g.May(bob, Push, a).Code)
	require.Equal(t, CodeNotCollaborator, g.May(boss, Push, a).Code)
	require.Equal(t, CodeNotAdmin, g.May(alice, Administer, a).Code)
	require.Equal(t, CodeOwnerChanged, g.Admit(Repo{DID: repoA, Owner: boss}).Code)
	require.Equal(t, CodeInvalidActor, g.Admit(Repo{DID: "x", Owner: alice}).Code)
	require.True(t, g.May(boss, Cancel, a).Allowed)

	g, err = New(2, Open, []Rule{Grant(alice, Owner, RepoDomain(repoA)), Grant(alice, Suspended, Spindle), Grant(bob, Collaborator, RepoDomain(repoA))})
	require.NoError(t, err)
	require.Equal(t, CodeInactive, g.Admit(a).Code)
	require.Contains(t, g.Admit(a).Sentence, "is paused: the account "+alice+" is suspended by its host")
	require.Equal(t, CodeInactive, g.May(alice, Cancel, a).Code)
	require.Equal(t, CodeInactive, g.May(bob, Push, a).Code, "what a suspended owner has is paused for everybody")
	require.True(t, g.May(bob, Cancel, a).Allowed)
	require.True(t, g.Knows(repoA) && g.Knows(alice) && g.Knows(bob) && !g.Knows(carol))
}

func TestGateIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	g, err := New(1, Open, []Rule{Grant(boss, Owner, Spindle), Grant(alice, Owner, RepoDomain(repoA))})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if !g.May(alice, Push, Repo{DID: repoA, Owner: alice}).Allowed || g.May(bob, Push, Repo{DID: repoA, Owner: alice}).Allowed {
					t.Error("a decision changed")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkNew10000(b *testing.B) {
	var rules []Rule
	for i := range 5000 {
		rules = append(rules, Grant(alice, Owner, RepoDomain(fmt.Sprintf("did:plc:%024d", i))), Grant(bob, Collaborator, RepoDomain(fmt.Sprintf("did:plc:%024d", i))))
	}
	for b.Loop() {
		if _, err := New(1, Open, rules); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMay(b *testing.B) {
	g, err := New(1, Open, []Rule{Grant(alice, Owner, RepoDomain(repoA))})
	require.NoError(b, err)
	for b.Loop() {
		g.May(alice, Push, Repo{DID: repoA, Owner: alice})
	}
}
