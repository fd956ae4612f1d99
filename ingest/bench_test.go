package ingest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"spindle/devnet"
	"spindle/devnet/pds"
	"spindle/identity"
	"spindle/internal/clock"
	"spindle/internal/netguard"
	"spindle/knot"
	"spindle/store"
)

func TestMain(m *testing.M) {
	// The logger of the IPFS libraries that indigo uses starts this one at import and has no way to stop it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ipfs/go-log/writer.(*MirrorWriter).logRoutine"))
}

// spindle is the name that repositories of the tests choose.
const spindle = "spindle.test"

// until waits for ok, at most 20 s.
func until(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}

// bench is an Ingest on a real store and a network of its own: real sockets, real git, real signatures. Nothing
// runs but what a test starts.
type bench struct {
	*Ingest
	t     *testing.T
	net   *devnet.Net
	store *store.Store
	alice *devnet.Account // owns the spindle
	path  string
	tries *tally // what Prove and Follow were told

	stop context.CancelFunc
	done sync.WaitGroup
}

// tally counts words.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
}

func (c *tally) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, tries: &tally{}, path: filepath.Join(t.TempDir(), "spindle.db")}
	var err error
	b.net, err = devnet.Start(t.Context(), devnet.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.net.Close()) })
	b.alice, err = b.net.CreateAccount(t.Context(), "alice.test")
	require.NoError(t, err)
	b.store, err = store.Open(t.Context(), store.Config{Path: b.path, Clock: clock.Real{}, Owner: b.alice.DID.String(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })

	guard := netguard.New(netguard.Config{Dev: true, Hosts: b.net.Hosts()})
	client := guard.HTTPClient(netguard.ClientOptions{Timeout: 5 * time.Second})
	t.Cleanup(client.CloseIdleConnections)
	c := Config{
		Store: b.store, Hostname: spindle, PublicURL: "http://" + spindle, Dial: guard.DialContext, Clock: clock.Real{},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Count: b.tries.add, Health: func(string, bool, string) {},
		Patience: time.Millisecond,
	}
	c.Prover, c.Knots, c.Signatures = b.outside(client)
	for _, f := range change {
		f(&c)
	}
	b.Ingest = New(c)
	return b
}

// outside is the real prover and the real knot client on the bench's network.
func (b *bench) outside(client *http.Client) (*identity.Prover, *knot.Client, *identity.Directory) {
	git, err := knot.FindGit(b.t.Context(), "")
	if err != nil {
		b.t.Skip("needs git: " + err.Error())
	}
	dir := identity.NewDirectory(identity.DirectoryConfig{PLCURL: b.net.PLCURL(), Client: client, Dev: true})
	prover := identity.NewProver(identity.ProverConfig{Directory: dir, Client: client})
	knots, err := knot.New(knot.Config{Git: git, RepoDir: b.t.TempDir(), Directory: dir, Prover: prover, Dev: true})
	require.NoError(b.t, err)
	return prover, knots, dir
}

// run follows the network's stream and proves what it hints at, until halt or the end of the test.
func (b *bench) run() {
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.done.Go(func() { _ = b.Follow(ctx, b.net.JetstreamURL()) })
	b.done.Go(func() { _ = b.Prove(ctx) })
	b.t.Cleanup(b.halt)
	until(b.t, func() bool { return b.net.Jetstream().Subscribers() == 1 }, "connected")
}

// runKnots is run with the streams of the knots as well.
func (b *bench) runKnots() {
	b.run()
	b.followKnots()
}

func (b *bench) followKnots() {
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = b.FollowKnots(ctx) })
	b.t.Cleanup(func() { stop(); done.Wait() })
}

func (b *bench) halt() {
	b.stop()
	b.done.Wait()
}

// nobody is an account that is in no directory.
const nobody = "did:plc:nobodynobodynobodynobody"

// caughtUp waits until everything that the stream has told so far is settled.
func (b *bench) caughtUp() {
	b.t.Helper()
	b.heard()
	until(b.t, func() bool {
		n, err := b.store.CountRechecks(context.Background())
		return err == nil && n == 0
	}, "hints are settled")
}

// heard waits until everything that the stream has told so far is stored.
func (b *bench) heard() {
	b.t.Helper()
	at, err := b.net.Jetstream().Forge(nobody, pds.Create, devnet.Ticket, "3mzzzzzzzzz2z", map[string]any{})
	require.NoError(b.t, err)
	until(b.t, func() bool { return b.cursor() >= at }, "the stream is read")
}

func (b *bench) cursor() int64 {
	u := b.net.JetstreamURL()
	c, _, err := b.store.Cursor(context.Background(), jetstreamSource, u[len("ws://"):len(u)-len("/subscribe")], protocolV1)
	require.NoError(b.t, err)
	return c.Value
}

func (b *bench) account(handle string) *devnet.Account {
	b.t.Helper()
	a, err := b.net.CreateAccount(b.t.Context(), handle)
	require.NoError(b.t, err)
	return a
}

// repo makes a repository of owner's that chose the spindle.
func (b *bench) repo(owner *devnet.Account, name string) *devnet.Repo {
	b.t.Helper()
	r, err := b.net.CreateRepo(b.t.Context(), owner, name, devnet.RepoOptions{Spindle: spindle})
	require.NoError(b.t, err)
	return r
}

func (b *bench) served(repo *devnet.Repo) bool {
	b.t.Helper()
	r, ok, err := b.store.Repo(context.Background(), repo.DID.String())
	require.NoError(b.t, err)
	return ok && !r.Gone
}

// events lists the accepted triggers that still wait, as nothing here plans them.
func (b *bench) events() []store.Event {
	b.t.Helper()
	es, err := b.store.NextEvents(context.Background(), 1000)
	require.NoError(b.t, err)
	return es
}

// quick is a clock that never waits, but for pings, and notes what it was asked to wait.
type quick struct {
	clock.Real
	ping time.Duration

	mu    sync.Mutex
	slept []time.Duration
}

func (q *quick) Sleep(ctx context.Context, d time.Duration) error {
	if d == q.ping {
		return q.Real.Sleep(ctx, d)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slept = append(q.slept, d)
	return ctx.Err()
}

func (q *quick) waits() []time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]time.Duration(nil), q.slept...)
}

// plainDial is an unguarded dial.
func plainDial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

var errDown = errors.New("down")

// ahead is a clock of two days from now.
type ahead struct{ clock.Real }

func (ahead) Now() time.Time { return time.Now().Add(48 * time.Hour) }
