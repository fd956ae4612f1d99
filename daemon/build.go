package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"spindle/backfill"
	"spindle/identity"
	"spindle/identity/oidc"
	"spindle/ingest"
	"spindle/internal/netguard"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/logs"
	"spindle/obs"
	"spindle/queue"
	"spindle/runner"
	"spindle/secrets"
	"spindle/store"
	"spindle/trigger"
	"spindle/web"
	"spindle/workflow"
	"spindle/xrpc"
)

// Daemon is a built server. Run it once, then Close it.
type Daemon struct {
	o       Options
	health  *obs.Health
	metrics *obs.Metrics
	self    *identity.Self
	store   *store.Store
	proxy   *netguard.Proxy

	ingest     *ingest.Ingest
	backfill   *backfill.Backfill
	planner    *trigger.Planner
	scheduler  *trigger.Scheduler
	dispatcher *queue.Dispatcher
	calls      *xrpc.Server
	pages      *web.Web
	handler    http.Handler
	listener   net.Listener
	draining   atomic.Bool

	statusMu   sync.Mutex
	statusBody []byte // what was last told of the server
	statusAt   time.Time
}

// outside is what speaks to other machines, all of it through one guard.
type outside struct {
	guard     *netguard.Guard
	proxy     *netguard.Proxy
	directory *identity.Directory
	prover    *identity.Prover
	knots     *knot.Client
}

// Build makes a server and starts nothing but its listener and the local proxy that git goes through. What
// cannot work is refused here, with what to do about it.
func Build(ctx context.Context, o Options) (*Daemon, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSetting, err)
	}
	d := &Daemon{o: o, health: obs.NewHealth(o.Clock), metrics: obs.NewMetrics()}
	if err := d.build(ctx); err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// build fills d. What it opened before it fails is closed by its caller.
func (d *Daemon) build(ctx context.Context) (err error) {
	o := d.o
	if d.self, err = identity.OpenSelf(identity.SelfConfig{
		Hostname: o.Hostname, KeyPath: o.KeyPath, Endpoint: o.PublicURL,
	}); err != nil {
		return fmt.Errorf("own identity: %w", err)
	}
	if d.store, err = store.Open(ctx, store.Config{
		Path: o.DBPath, Clock: o.Clock, Log: o.Log, Admission: o.Admission, Owner: o.Owner, Admins: o.Admins,
		Members: o.Members, Banned: o.Banned,
	}); err != nil {
		return fmt.Errorf("open the database %s: %w", o.DBPath, err)
	}
	out, err := d.outside(ctx)
	if err != nil {
		return err
	}
	vault, err := secrets.New(secrets.Config{KEKPath: o.SecretsKeyPath, Store: d.store, Clock: o.Clock})
	if err != nil {
		return fmt.Errorf("open the secrets: %w", err)
	}
	issuer, err := oidc.Open(oidc.Config{IssuerURL: o.OIDCIssuer, KeyPath: o.OIDCKeyPath, IdentityKeyPath: o.KeyPath, Clock: o.Clock, Dev: o.Dev})
	if err != nil {
		return fmt.Errorf("open the token issuer: %w", err)
	}
	output, err := logs.Open(logs.Config{Dir: o.LogDir, Clock: o.Clock, Log: o.Log})
	if err != nil {
		return fmt.Errorf("open the logs: %w", err)
	}
	if err := d.work(out, vault, issuer, output); err != nil {
		return err
	}
	if err := d.edges(out, vault, issuer, output); err != nil {
		return err
	}
	d.listener = o.Listener
	if d.listener == nil {
		if d.listener, err = net.Listen("tcp", o.ListenAddr); err != nil {
			return fmt.Errorf("listen on %s: %w; free the address or set SPINDLE_SERVER_LISTEN_ADDR", o.ListenAddr, err)
		}
	}
	return nil
}

// outside builds the guard and what goes through it.
func (d *Daemon) outside(ctx context.Context) (outside, error) {
	o := d.o
	guard := netguard.New(netguard.Config{Dev: o.Dev, Hosts: o.Hosts, Denied: d.metrics.Denied})
	proxy, err := guard.StartProxy(context.WithoutCancel(ctx))
	if err != nil {
		return outside{}, fmt.Errorf("start the proxy for git: %w", err)
	}
	d.proxy = proxy
	git, err := knot.FindGit(ctx, o.Git)
	if err != nil {
		return outside{}, fmt.Errorf("find git: %w", err)
	}
	client := guard.HTTPClient(netguard.ClientOptions{Timeout: 20 * time.Second})
	dir := identity.NewDirectory(identity.DirectoryConfig{PLCURL: o.PLC, Client: client, Clock: o.Clock, Dev: o.Dev})
	spool := filepath.Join(o.StateDir, "spool")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return outside{}, fmt.Errorf("make the folder for records that are read: %w", err)
	}
	prover := identity.NewProver(identity.ProverConfig{
		Directory: dir, Client: client, Bulk: guard.HTTPClient(netguard.ClientOptions{Timeout: 5 * time.Minute}), Clock: o.Clock, Dir: spool,
	})
	repos, err := filepath.Abs(o.RepoDir)
	if err != nil {
		return outside{}, fmt.Errorf("folder for repositories: %w", err)
	}
	knots, err := knot.New(knot.Config{
		Git: git, RepoDir: repos, ProxyURL: proxy.URL(), Directory: dir, Prover: prover, Dev: o.Dev, Log: o.Log,
	})
	if err != nil {
		return outside{}, fmt.Errorf("open the repositories' folder: %w", err)
	}
	return outside{guard: guard, proxy: proxy, directory: dir, prover: prover, knots: knots}, nil
}

// work builds what turns events into results.
func (d *Daemon) work(out outside, vault *secrets.Vault, issuer *oidc.Issuer, output *logs.Logs) error {
	o := d.o
	d.ingest = ingest.New(ingest.Config{
		Store: d.store, Prover: out.prover, Knots: out.knots, Signatures: out.directory, Hostname: o.Hostname, PublicURL: o.PublicURL,
		Dial: out.guard.DialContext, Clock: o.Clock, Log: o.Log, Count: d.metrics.Refused, Health: d.health.Set,
		Gaps:         gaps{d},
		OnlyFollowed: o.OnlyFollowed,
		Moved: func(did string) {
			if d.pages != nil {
				d.pages.Forget(did)
			}
		},
	})
	d.backfill = backfill.New(backfill.Config{
		Store: d.store, Reader: out.prover, Knots: out.knots, Intake: d.ingest, Clock: o.Clock, Log: o.Log,
		Collections: ingest.AccountCollections(), Binding: ingest.Binding(), Health: d.health.Set,
		Metrics: backfill.NewMetrics(d.metrics.Registerer()),
		Every:   o.ReadEvery, Looks: o.LookEvery, LateAge: o.LateAge, Grace: o.LookGrace,
	})
	if err := d.measure(); err != nil {
		return err
	}
	attempts := filepath.Join(o.StateDir, "attempts")
	// What a former process left behind belongs to attempts that are over.
	if err := os.RemoveAll(attempts); err != nil {
		return fmt.Errorf("clear the attempts' folder: %w", err)
	}
	attempts, err := filepath.Abs(attempts)
	if err != nil {
		return fmt.Errorf("the attempts' folder: %w", err)
	}
	if err := os.MkdirAll(attempts, 0o755); err != nil {
		return fmt.Errorf("make the attempts' folder: %w", err)
	}
	run := runner.New(runner.Config{
		Facts: d.store, Checkouts: out.knots, Secrets: vault, Tokens: tokens{issuer: issuer, log: o.Log}, Logs: output,
		Engines: o.Engines, Clock: o.Clock, Log: o.Log, Dir: attempts, Timeout: o.Timeout, MaxTimeout: o.MaxTimeout,
	})
	can := workflow.ThisVersion()
	d.planner = trigger.New(trigger.Config{
		Store: d.store, Sources: out.knots, IDs: tid.New(o.Clock), Clock: o.Clock, Log: o.Log,
		Engines: run.Names(), Capabilities: &can, Limits: workflow.DefaultLimits(),
	})
	d.scheduler = trigger.NewScheduler(trigger.SchedulerConfig{
		Store: d.store, Heads: out.knots, Clock: o.Clock, Log: o.Log, Limits: workflow.DefaultLimits(),
	})
	d.dispatcher = queue.New(queue.Config{
		Jobs: d.store, Executor: run, Clock: o.Clock, Log: o.Log, Holder: holder, Engines: run.Names(),
		Labels: o.Labels, Seats: o.Seats, Drain: o.Drain,
	})
	return nil
}

// holder names this process's leases; recovery knows them by it.
const holder = "local"

// Handler serves everything that the server serves on its main listener.
func (d *Daemon) Handler() http.Handler { return d.handler }

// Addr is where the server listens.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// Close releases what Build opened. It is safe after a failed Build and after Run.
func (d *Daemon) Close(ctx context.Context) error {
	var errs []error
	if d.listener != nil {
		if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close the listener: %w", err))
		}
	}
	if d.calls != nil {
		errs = append(errs, d.calls.Close(ctx))
	}
	if d.pages != nil {
		errs = append(errs, d.pages.Close())
	}
	if d.proxy != nil {
		errs = append(errs, d.proxy.Close())
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	return errors.Join(errs...)
}
