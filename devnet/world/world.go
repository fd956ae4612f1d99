package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"spindle/daemon"
	"spindle/devnet"
	"spindle/engines"
	"spindle/identity"
	"spindle/internal/clock"
)

// Hostname is the name of the world's spindle.
const Hostname = "spindle.test"

// Options say what world to make.
type Options struct {
	// Dir holds everything; empty means a temporary folder that Close removes.
	Dir string
	// Addr is where the spindle listens; if it is taken, the next ports are tried.
	Addr string
	// Engines are where attempts run.
	Engines func(stateDir string) ([]engines.Engine, error)
	// Seats is how many workflows run at a time; 0 means 2.
	Seats int
	// Log hears of everything but the story.
	Log *slog.Logger
	// Clock is the time of the network and the spindle; nil is the machine's.
	Clock clock.Clock
	// LookGrace is how long a ref must be elsewhere before it counts as a late push; see daemon.Options.
	LookGrace time.Duration
}

// World is a running network with a running spindle. Make it with Start.
type World struct {
	Net    *devnet.Net
	Owner  *devnet.Account
	URL    string
	Dir    string
	Engine string // name of the first engine

	options   Options
	daemon    *daemon.Daemon
	temporary bool
	stop      context.CancelFunc
	done      sync.WaitGroup
	err       error
}

// Start makes the network, the owner's account and the spindle, and returns when the spindle answers.
func Start(ctx context.Context, o Options) (*World, error) {
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	w := &World{Dir: o.Dir, options: o}
	if err := w.open(ctx, o); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// open fills w. What it started before it fails is ended by its caller.
func (w *World) open(ctx context.Context, o Options) (err error) {
	if w.Dir == "" {
		if w.Dir, err = os.MkdirTemp("", "spindle-"); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		w.temporary = true
	}
	if w.Dir, err = filepath.Abs(w.Dir); err != nil {
		return fmt.Errorf("folder %s: %w", o.Dir, err)
	}
	listener, err := listen(o.Addr)
	if err != nil {
		return err
	}
	w.URL = "http://" + listener.Addr().String()
	w.Net, err = devnet.Start(ctx, devnet.Config{
		Dir: filepath.Join(w.Dir, "network"), Spindles: map[string]string{Hostname: w.URL}, Log: o.Log, Clock: o.Clock,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start the network: %w", err), listener.Close())
	}
	if w.Owner, err = w.Net.CreateAccount(ctx, "alice.test"); err != nil {
		return errors.Join(fmt.Errorf("make the owner's account: %w", err), listener.Close())
	}
	if err := w.serve(ctx, o, listener); err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

// serve builds and runs the spindle.
func (w *World) serve(ctx context.Context, o Options, l net.Listener) error {
	own := filepath.Join(w.Dir, "spindle")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	key := filepath.Join(own, "spindle.key")
	if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
		if err := identity.GenerateKeyFile(key); err != nil {
			return fmt.Errorf("make the server's key: %w", err)
		}
	}
	places, err := o.Engines(filepath.Join(own, "box"))
	if err != nil {
		return err
	}
	w.Engine = places[0].Name()
	w.daemon, err = daemon.Build(ctx, daemon.Options{
		Hostname: Hostname, PublicURL: w.URL, Owner: w.Owner.DID.String(), KeyPath: key,
		DBPath: filepath.Join(own, "spindle.db"), LogDir: filepath.Join(own, "logs"),
		RepoDir: filepath.Join(own, "repos"), StateDir: filepath.Join(own, "state"),
		Listener: l, Jetstream: w.Net.JetstreamURL(), PLC: w.Net.PLCURL(), Dev: true, Hosts: w.Net.Hosts(),
		Engines: places, Seats: o.Seats, Origins: []string{"*"}, Drain: time.Millisecond,
		LookGrace: o.LookGrace, Clock: o.Clock, Log: o.Log,
	})
	if err != nil {
		return fmt.Errorf("build the spindle: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.done.Go(func() { w.err = w.daemon.Run(run) })
	return w.Client(nil).Ready(ctx)
}

// Halt ends the spindle and leaves the network as it is.
func (w *World) Halt() error {
	if w.stop == nil {
		return nil
	}
	w.stop()
	w.done.Wait()
	w.stop = nil
	err := w.err
	if w.daemon != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, w.daemon.Close(ctx))
		w.daemon = nil
	}
	return err
}

// Resume starts the spindle again after Halt, at the same address and with what it had kept.
func (w *World) Resume(ctx context.Context) error {
	l, err := net.Listen("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		return fmt.Errorf("listen again: %w", err)
	}
	if err := w.serve(ctx, w.options, l); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// listen takes addr, or one of the ports after it.
func listen(addr string) (net.Listener, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", addr, err)
	}
	if !at.IP.IsLoopback() {
		return nil, fmt.Errorf("address %q is not a loopback address; anybody who reached it could push as you", addr)
	}
	for range 20 {
		l, err := net.ListenTCP("tcp", at)
		if err == nil {
			return l, nil
		}
		if at.Port == 0 {
			return nil, fmt.Errorf("listen on %s: %w", at, err)
		}
		at.Port++
	}
	return nil, fmt.Errorf("no free port from %s on; free one or choose another with --port", addr)
}

// Client speaks to the world's spindle as a; nil is nobody.
func (w *World) Client(a *devnet.Account) *Client {
	return NewClient(w.URL, Hostname, a)
}

// Close ends the spindle, then the network, and removes a temporary folder.
func (w *World) Close() error {
	var errs []error
	if w.stop != nil {
		w.stop()
		w.done.Wait()
		errs = append(errs, w.err)
	}
	if w.daemon != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		errs = append(errs, w.daemon.Close(ctx))
		cancel()
	}
	if w.Net != nil {
		errs = append(errs, w.Net.Close())
	}
	if w.temporary {
		errs = append(errs, os.RemoveAll(w.Dir))
	}
	return errors.Join(errs...)
}
