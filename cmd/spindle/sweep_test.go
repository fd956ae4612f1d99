package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/knot"
	"spindle/devnet/world"
	"spindle/lexicons/orgtangled"
)

var sweepKills = flag.Int("sweep.kills", 0, "how many kills TestP3SweepOfKills makes; it is left out without")

// sweep is a network with a server that dies at its commits, and the ledger of what was done meanwhile.
type sweep struct {
	*bed
	told, quiet, mute *devnet.Repo // by notices and streams, by the stream alone, and by nothing
	fork              *devnet.Repo // served by nobody
	quietKnot         *devnet.Knot
	muteKnot          *devnet.Knot
	bob               *devnet.Account
	log               string
	n                 int
	rights            bool // whether bob is a collaborator of told
	ledger            []entry
}

// entry is a commit that starts one pipeline of a repository, by the way named.
type entry struct{ repo, sha, way string }

const sweepFlow = "when:\n  - event: [push, pull_request]\n    branch: [\"**\"]\nengine: dummy\nclone: {skip: true}\nsteps:\n  - command: echo done\n"

func newSweep(t *testing.T) *sweep {
	s := &sweep{bed: newBedOf(t, dying.build(t, "-tags", "crashpoints"))}
	s.log = filepath.Join(s.dir, "points")
	var err error
	s.bob, err = s.net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	silent := knot.Faults{Drop: func(knot.Push) bool { return true }}
	s.quietKnot, err = s.net.StartKnot(t.Context(), "quiet.test")
	require.NoError(t, err)
	s.quietKnot.SetFaults(silent)
	s.muteKnot, err = s.net.StartKnot(t.Context(), "mute.test")
	require.NoError(t, err)
	s.muteKnot.SetFaults(silent)
	s.muteKnot.SetStreams(knot.StreamFaults{NoOlder: true, NoNewer: true})
	return s
}

// up starts a server and waits until it is ready or gone.
func (s *sweep) up(more ...string) *server {
	srv := s.start(more...)
	s.until(time.Minute, "the server is ready or gone", func() bool {
		return !srv.lives() || s.ready()
	})
	return srv
}

func (s *server) lives() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

func (s *sweep) ready() bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	_, err := s.client(nil).Get(ctx, "/_ready")
	return err == nil
}

func (s *sweep) until(most time.Duration, what string, ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, most, 20*time.Millisecond, what)
}

// clean starts a server that does not die, and writes down its points.
func (s *sweep) clean() *server {
	srv := s.up("CRASH_LOG=" + s.log)
	require.True(s.t, srv.lives(), "%s", srv.said)
	return srv
}

// points reads and forgets what the last server passed.
func (s *sweep) points() (out []string) {
	f, err := os.Open(s.log)
	require.NoError(s.t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		out = append(out, lines.Text())
	}
	require.NoError(s.t, os.Remove(s.log))
	return out
}

// found makes the repositories while a server runs.
func (s *sweep) found() {
	t := s.t
	srv := s.clean()
	repo := func(name string, k *devnet.Knot) *devnet.Repo {
		r, err := s.net.CreateRepo(t.Context(), s.alice, name, devnet.RepoOptions{Spindle: world.Hostname, Knot: k})
		require.NoError(t, err)
		require.NoError(t, s.client(nil).Served(t.Context(), r.DID.String()))
		_, err = r.Push(t.Context(), devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": sweepFlow}})
		require.NoError(t, err)
		return r
	}
	s.told, s.quiet, s.mute = repo("told", s.net.Knot()), repo("quiet", s.quietKnot), repo("mute", s.muteKnot)
	var err error
	s.fork, err = s.net.Fork(t.Context(), s.bob, s.told, devnet.RepoOptions{})
	require.NoError(t, err)
	// What is at a repository before the first look at it starts nothing late.
	s.until(time.Minute, "all repositories were looked at", func() bool {
		b, err := os.ReadFile(s.log)
		return err == nil && strings.Contains(string(b), "after note the refs of 3")
	})
	srv.kill()
	s.points()
}

func (s *sweep) push(r *devnet.Repo, branch, way string) {
	s.n++
	p, err := r.Push(s.t.Context(), devnet.Change{Branch: branch, Files: map[string]string{"n": fmt.Sprint(s.n)}})
	require.NoError(s.t, err)
	if way != "" {
		s.ledger = append(s.ledger, entry{r.DID.String(), p.SHA, way})
	}
}

// unseen is done while no server runs; what nothing tells of is found by looking.
func (s *sweep) unseen() {
	s.push(s.mute, fmt.Sprintf("b%d", s.n), "look")
}

// round does one of each, until the server is gone.
func (s *sweep) round(srv *server) {
	for _, act := range []func(){
		func() { s.push(s.told, "", "notice") },
		func() { s.push(s.quiet, "", "stream") },
		func() {
			s.push(s.fork, "", "")
			p, err := s.net.OpenPull(s.t.Context(), s.alice, s.told, s.fork, devnet.PullOptions{})
			require.NoError(s.t, err)
			s.ledger = append(s.ledger, entry{s.told.DID.String(), p.Rounds[0].Head, "pull"})
		},
		func() {
			do := s.told.AddCollaborator
			if s.rights {
				do = s.told.RemoveCollaborator
			}
			require.NoError(s.t, do(s.bob))
			s.rights = !s.rights
		},
	} {
		if !srv.lives() {
			return
		}
		act()
	}
}

// settled waits until everything of the ledger has ended, and has it that each started one pipeline, no more.
func (s *sweep) settled(from int) {
	t := s.t
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, e := range s.ledger[from:] {
		_, err := s.client(nil).Await(ctx, e.repo, e.sha, rests)
		require.NoError(t, err, "lost: %+v", e)
	}
	may := func() bool {
		return s.client(s.bob).PutSecret(ctx, s.told.DID.String(), "A", "a secret of some length") == nil
	}
	s.until(time.Minute, fmt.Sprintf("bob's right is %v", s.rights), func() bool { return may() == s.rights })
	for _, e := range s.ledger {
		all, err := s.client(nil).Pipelines(ctx, e.repo, e.sha)
		require.NoError(t, err)
		require.Len(t, all, 1, "doubled: %+v", e)
	}
}

// rests tells whether nothing more happens by itself: the pull request comes from a stranger's fork, and is held.
func rests(p *orgtangled.CiDefs_Pipeline) bool { return world.Ended(p) || world.State(p) == "held" }

// TestP3SweepOfKills has the server die at each commit of the way in: it records at what commits a round of pushes
// (told by notice, by the knot's stream, by nothing), of a pull request and of a collaborator passes, before and after
// each, and has a server die at each of them in turn while such rounds go on. What the dead one left is for the next
// to find, which dies as well; every few kills one lives, and everything in the ledger has had its one pipeline.
// go test ./cmd/spindle -run SweepOfKills -sweep.kills=300 makes all the kills.
func TestP3SweepOfKills(t *testing.T) {
	if *sweepKills < 1 {
		t.Skip("it builds a binary of its own and takes minutes: -sweep.kills=300 makes it run")
	}
	t.Parallel()
	s := newSweep(t)
	s.found()
	// A first round makes what later ones find; the second is the reference.
	var points []string
	for range 2 {
		s.unseen()
		srv := s.clean()
		s.round(srv)
		s.settled(0)
		srv.kill()
		points = s.points()
	}
	require.NotEmpty(t, points)
	var plan []string
	for _, p := range points {
		name, hit := p[:strings.LastIndex(p, " ")], p[strings.LastIndex(p, " ")+1:]
		// What runs do by themselves comes many times, and has tests of its own in store; three of each are enough here.
		if len(hit) == 1 && hit <= "3" && !strings.HasSuffix(name, " ping") && !strings.HasSuffix(name, " close") {
			plan = append(plan, p)
		}
	}
	slices.Sort(plan)
	plan = slices.Compact(plan)
	each := max(1, len(plan) / *sweepKills)
	kinds, passed, kills, missed, checked := map[string]int{}, 0, 0, 0, len(s.ledger)
	for i := 0; kills < *sweepKills && i < 4*max(len(plan), *sweepKills); i++ {
		point := plan[i*each%len(plan)]
		late := strings.Contains(point, "late")
		if late {
			s.unseen()
		}
		srv := s.up("CRASH_AT=" + point)
		s.round(srv)
		wait := 5 * time.Second
		if late {
			wait = 25 * time.Second // a look is made twice, some seconds apart
		}
		select {
		case <-srv.done:
			status, ok := srv.cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok && status.Signal() == syscall.SIGKILL, "%s: %s", point, srv.said)
			kinds[point[:strings.LastIndex(point, " ")]]++
			kills++
		case <-time.After(wait):
			missed++
			srv.kill()
		}
		if passed++; passed%10 == 0 || kills == *sweepKills {
			t.Logf("%d kills, %d points not reached, %d in the ledger; the last at %q", kills, missed, len(s.ledger), point)
			srv := s.clean()
			s.settled(checked)
			checked = len(s.ledger)
			srv.kill()
			s.points()
		}
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%3d x %s", kinds[k], k)
	}
	ways := map[string]int{}
	for _, e := range s.ledger {
		ways[e.way]++
	}
	t.Logf("%d kills at %d points, %d points not reached: %d commits %v, none lost, none doubled", kills, len(kinds), missed, len(s.ledger), ways)
	require.Equal(t, *sweepKills, kills)
}
