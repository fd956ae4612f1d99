package devnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/devnet/fault"
	"spindle/devnet/firehose"
	"spindle/devnet/jetstream"
	"spindle/devnet/knot"
	"spindle/devnet/pds"
	"spindle/devnet/plc"
	"spindle/internal/clock"
	"spindle/internal/tid"
)

// Config says where the network lives. The zero value is a network on free loopback ports whose files are
// removed by Close.
type Config struct {
	// Dir is the folder for git repositories, made if it is missing. Empty means a temporary folder.
	Dir string
	// Listen is the address of every part; the port must be 0. Empty means 127.0.0.1:0.
	Listen string
	// Spindles maps the host name of a spindle, as manifests name it, to the base URL that reaches it.
	// SetSpindle adds to it later.
	Spindles map[string]string
	// Clock is the time of revisions and events. Nil means the machine's.
	Clock clock.Clock
	// Log hears of what no client can be told. Nil means nobody.
	Log *slog.Logger
}

// PDS is one personal data server of the network.
type PDS struct {
	*pds.Host
	Name     string // host name
	Server   *fault.Server
	Firehose *firehose.Stream // its own com.atproto.sync.subscribeRepos
}

// Knot is one git host of the network.
type Knot struct {
	*knot.Knot
	Name    string    // host name
	Records *pds.Host // record repositories of its git repositories
	Server  *fault.Server
}

// Net is a running network. Make it with Start; it is safe for concurrent use.
type Net struct {
	cfg       Config
	dir       string
	directory *plc.Directory
	stream    *jetstream.Stream
	relay     *firehose.Stream
	tids      *tid.Source
	plcServer *fault.Server
	jetServer *fault.Server
	relServer *fault.Server

	mu       sync.Mutex
	pdses    []*PDS
	knots    []*Knot
	spindles map[string]string
	accounts map[syntax.DID]*Account
	handles  map[string]syntax.DID
}

// Start opens the network. It runs until Close, whatever becomes of ctx.
func Start(ctx context.Context, cfg Config) (*Net, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Net{
		cfg: cfg, directory: plc.New(), stream: jetstream.New(jetstream.Config{Clock: cfg.Clock}),
		relay: firehose.New(firehose.Config{Clock: cfg.Clock}), tids: tid.New(cfg.Clock), spindles: map[string]string{},
		accounts: map[syntax.DID]*Account{}, handles: map[string]syntax.DID{},
	}
	maps.Copy(n.spindles, cfg.Spindles)
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Net) open(ctx context.Context) (err error) {
	if n.cfg.Dir == "" {
		n.dir, err = os.MkdirTemp("", "devnet-")
	} else if err = os.MkdirAll(n.cfg.Dir, 0o755); err == nil {
		// git is run in other folders, so a relative path would not do.
		n.dir, err = filepath.Abs(n.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("make the network's folder: %w", err)
	}
	if n.plcServer, err = fault.Listen(ctx, n.cfg.Listen); err != nil {
		return err
	}
	n.plcServer.Serve(ctx, n.directory, n.cfg.Log)
	if n.jetServer, err = fault.Listen(ctx, n.cfg.Listen); err != nil {
		return err
	}
	n.jetServer.Serve(ctx, n.stream, n.cfg.Log)
	if n.relServer, err = fault.Listen(ctx, n.cfg.Listen); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+firehose.Path, n.relay)
	n.relServer.Serve(ctx, mux, n.cfg.Log)
	if _, err = n.StartPDS(ctx, "pds.test"); err != nil {
		return err
	}
	_, err = n.StartKnot(ctx, "knot.test")
	return err
}

// StartPDS adds a PDS.
func (n *Net) StartPDS(ctx context.Context, name string) (*PDS, error) {
	s, err := fault.Listen(ctx, n.cfg.Listen)
	if err != nil {
		return nil, err
	}
	own := firehose.New(firehose.Config{Clock: n.cfg.Clock})
	p := &PDS{
		Host: pds.New(pds.Config{Sink: sink{n, own}, Clock: n.cfg.Clock, Firehose: own}), Name: name, Server: s, Firehose: own,
	}
	s.Serve(ctx, p.Handler(), n.cfg.Log)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pdses = append(n.pdses, p)
	return p, nil
}

// StartKnot adds a knot.
func (n *Net) StartKnot(ctx context.Context, name string) (*Knot, error) {
	dir := filepath.Join(n.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the knot's folder: %w", err)
	}
	own := firehose.New(firehose.Config{Clock: n.cfg.Clock})
	records := pds.New(pds.Config{Sink: sink{n, own}, Clock: n.cfg.Clock, Firehose: own})
	k, err := knot.New(knot.Config{
		Dir: dir, Records: records, Accounts: people{n}, Spindle: n.spindle, Clock: n.cfg.Clock, Log: n.cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s, err := fault.Listen(ctx, n.cfg.Listen)
	if err != nil {
		k.Close()
		return nil, err
	}
	out := &Knot{Knot: k, Name: name, Records: records, Server: s}
	s.Serve(ctx, k.Handler(), n.cfg.Log)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.knots = append(n.knots, out)
	return out, nil
}

// Close ends everything and waits for it. A temporary folder is removed.
func (n *Net) Close() error {
	n.mu.Lock()
	pdses, knots := n.pdses, n.knots
	n.pdses, n.knots = nil, nil
	n.mu.Unlock()
	var errs []error
	for _, k := range knots {
		errs = append(errs, k.Server.Close())
		k.Close()
	}
	for _, p := range pdses {
		errs = append(errs, p.Server.Close())
	}
	for _, s := range []*fault.Server{n.jetServer, n.relServer, n.plcServer} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if n.cfg.Dir == "" && n.dir != "" {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}

// PLCURL is the origin of the directory.
func (n *Net) PLCURL() string { return n.plcServer.URL() }

// JetstreamURL is the address of the event stream, ws://ip:port/subscribe.
func (n *Net) JetstreamURL() string { return "ws://" + n.jetServer.Addr() + "/subscribe" }

// JetstreamV2URL is the address of the event stream in version 2 of the protocol.
func (n *Net) JetstreamV2URL() string { return "ws://" + n.jetServer.Addr() + jetstream.PathV2 }

// FirehoseURL is the address of the relay: the firehose of every PDS and knot.
func (n *Net) FirehoseURL() string { return "ws://" + n.relServer.Addr() + firehose.Path }

// KnotURL is the origin of the first knot.
func (n *Net) KnotURL() string { return n.Knot().Server.URL() }

// PDSURL is the origin of the first PDS.
func (n *Net) PDSURL() string { return n.PDS().Server.URL() }

// Directory is the PLC directory.
func (n *Net) Directory() *plc.Directory { return n.directory }

// PLCServer is the server of the directory, for faults.
func (n *Net) PLCServer() *fault.Server { return n.plcServer }

// Jetstream is the event stream.
func (n *Net) Jetstream() *jetstream.Stream { return n.stream }

// Relay is the firehose of every PDS and knot.
func (n *Net) Relay() *firehose.Stream { return n.relay }

// JetstreamServer is the server of the event stream, for faults.
func (n *Net) JetstreamServer() *fault.Server { return n.jetServer }

// PDS is the first PDS. The network must be open.
func (n *Net) PDS() *PDS {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pdses[0]
}

// Knot is the first knot. The network must be open.
func (n *Net) Knot() *Knot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.knots[0]
}

// SetSpindle says at which base URL the spindle of that host name is reached. An empty URL makes it
// unknown. Notices that wait are sent at once.
func (n *Net) SetSpindle(host, baseURL string) {
	n.mu.Lock()
	if baseURL == "" {
		delete(n.spindles, host)
	} else {
		n.spindles[host] = baseURL
	}
	knots := n.knots
	n.mu.Unlock()
	for _, k := range knots {
		k.Wake()
	}
}

func (n *Net) spindle(host string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	u, ok := n.spindles[host]
	return u, ok
}

// Hosts maps the made-up host names of the network to "ip:port", for a dialer that is told where to go:
// the parts, the handles of the accounts, and the spindles.
func (n *Net) Hosts() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{"plc.test": n.plcServer.Addr(), "jetstream.test": n.jetServer.Addr(), "relay.test": n.relServer.Addr()}
	for _, p := range n.pdses {
		out[p.Name] = p.Server.Addr()
	}
	for _, k := range n.knots {
		out[k.Name] = k.Server.Addr()
	}
	for _, a := range n.accounts {
		out[a.Handle] = a.pds.Server.Addr()
	}
	for host, base := range n.spindles {
		if u, err := url.Parse(base); err == nil && u.Port() != "" {
			out[host] = u.Host
		}
	}
	return out
}

// sink hands what happens in record repositories to the event streams: the Jetstream, the relay, and the host's own
// firehose, if it is known whose.
type sink struct {
	net *Net
	own *firehose.Stream
}

func (s sink) Commit(c pds.Change) {
	s.append(jetstream.Event{DID: c.DID, Kind: "commit", Commit: &jetstream.Commit{
		Rev: c.Rev, Operation: c.Operation, Collection: c.Collection, Rkey: c.Rkey, Record: c.Record, CID: c.CID,
	}})
	s.fire(func(f *firehose.Stream) (int64, error) {
		return f.Commit(firehose.Commit{
			DID: c.DID, Rev: c.Rev, Since: c.Since, Commit: c.Commit, PrevData: c.PrevData, Prev: c.Prev, CID: c.Value,
			Operation: c.Operation, Path: c.Collection + "/" + c.Rkey, Blocks: c.Blocks,
		})
	})
}

func (s sink) Identity(did, handle string) {
	s.append(jetstream.Event{DID: did, Kind: "identity", Identity: &jetstream.Identity{DID: did, Handle: handle}})
	s.fire(func(f *firehose.Stream) (int64, error) { return f.Identity(did, handle) })
}

func (s sink) Account(did string, active bool, status string) {
	s.append(jetstream.Event{DID: did, Kind: "account", Account: &jetstream.Account{DID: did, Active: active, Status: status}})
	s.fire(func(f *firehose.Stream) (int64, error) { return f.Account(did, active, status) })
}

func (s sink) append(e jetstream.Event) {
	if _, err := s.net.stream.Append(e); err != nil {
		s.net.cfg.Log.Error("an event is lost", "err", err)
	}
}

// fire tells the relay, and the host's own firehose.
func (s sink) fire(tell func(*firehose.Stream) (int64, error)) {
	for _, f := range []*firehose.Stream{s.net.relay, s.own} {
		if f == nil {
			continue
		}
		if _, err := tell(f); err != nil {
			s.net.cfg.Log.Error("a message is lost", "err", err)
		}
	}
}
