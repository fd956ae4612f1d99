package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// sweeper is an engine that can remove what a former process left running.
type sweeper interface {
	Sweep(ctx context.Context) error
}

// Run recovers, serves and works until ctx ends, then stops in order and returns nil. It returns an error only
// when the server could not start or broke.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.recover(ctx); err != nil {
		return err
	}
	// The calls must outlive the listener's stop, and the work the calls: each has a context of its own.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var wg sync.WaitGroup
	broke := make(chan error, 2)
	servers := []*http.Server{d.serve(serving, &wg, broke, d.listener, d.handler)}
	if d.o.MetricsAddr != "" {
		l, err := net.Listen("tcp", d.o.MetricsAddr)
		if err != nil {
			stopServing()
			return fmt.Errorf("listen on %s for metrics: %w; set SPINDLE_SERVER_METRICS_LISTEN_ADDR", d.o.MetricsAddr, err)
		}
		servers = append(servers, d.serve(serving, &wg, broke, l, d.metrics.Handler()))
	}
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	var readers, workers sync.WaitGroup
	if d.o.Jetstream != "" {
		readers.Go(func() { d.report("record stream", d.ingest.Follow(reading, d.o.Jetstream)) })
	}
	if !d.o.NoKnotStreams {
		readers.Go(func() { d.report("knots", d.ingest.FollowKnots(reading)) })
	}
	readers.Go(func() { d.report("records", d.ingest.Prove(reading)) })
	readers.Go(func() { d.report("catch-up", d.ingest.CatchUp(reading)) })
	readers.Go(func() { d.report("backfill", d.backfill.Run(reading)) })
	readers.Go(func() { d.report("planner", d.planner.Run(reading)) })
	readers.Go(func() { d.report("schedules", d.scheduler.Run(reading)) })
	workers.Go(func() { d.report("dispatcher", d.dispatcher.Run(working)) })
	workers.Go(func() { d.sweep(working) })
	d.o.Log.Info("ready", "did", d.self.DID(), "listen", d.Addr().String(), "offers", d.dispatcher.String())

	var err error
	select {
	case <-ctx.Done():
	case err = <-broke:
	}
	// No new work first; then what runs; then the readers' last writes; the listener last, so that people can
	// follow the end of what ran.
	d.draining.Store(true)
	stopReading()
	readers.Wait()
	stopWorking()
	workers.Wait()
	if d.calls != nil {
		end, cancel := context.WithTimeout(serving, 5*time.Second)
		err = errors.Join(err, d.calls.Close(end))
		cancel()
	}
	if d.pages != nil {
		err = errors.Join(err, d.pages.Close())
	}
	for _, s := range servers {
		end, cancel := context.WithTimeout(serving, 5*time.Second)
		if serr := s.Shutdown(end); serr != nil {
			_ = s.Close() // what would not end is cut
		}
		cancel()
	}
	stopServing()
	wg.Wait()
	return err
}

// recover brings the rows of a former process in order before anything new is taken.
func (d *Daemon) recover(ctx context.Context) error {
	for _, e := range d.o.Engines {
		if s, ok := e.(sweeper); ok {
			if err := s.Sweep(ctx); err != nil {
				d.o.Log.Warn("remove what a former process left", "engine", e.Name(), "err", err)
			}
		}
	}
	again, failed, err := d.store.Recover(ctx, holder)
	if err != nil {
		return fmt.Errorf("recover what a former process ran: %w", err)
	}
	if len(again)+len(failed) > 0 {
		d.o.Log.Warn("a former process ended in the middle of work", "runs_again", len(again), "failed", len(failed))
	}
	return nil
}

// sweepEvery is how often leases that ran out and holds that expired are looked for.
const sweepEvery = 15 * time.Second

func (d *Daemon) sweep(ctx context.Context) {
	for d.o.Clock.Sleep(ctx, sweepEvery) == nil {
		swept, err := d.store.Expired(ctx)
		if err != nil && ctx.Err() == nil {
			d.o.Log.Error("sweep leases", "err", err)
		}
		if n := len(swept.Requeued) + len(swept.Failed) + swept.Expired; n > 0 {
			d.o.Log.Warn("leases or holds ran out", "runs_again", len(swept.Requeued), "failed", len(swept.Failed), "expired", swept.Expired)
		}
	}
}

// writeTimeout is how long a whole answer may take to be made and taken.
const writeTimeout = time.Minute

// serve answers on l until the server is shut down. Who does not read an answer for writeTimeout is cut; streams and
// downloads set a deadline of their own for each piece, since logs are followed for hours.
func (d *Daemon) serve(ctx context.Context, wg *sync.WaitGroup, broke chan<- error, l net.Listener, h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			select {
			case broke <- fmt.Errorf("serve %s: %w", l.Addr(), err):
			default:
			}
		}
	})
	return s
}

func (d *Daemon) report(what string, err error) {
	if err != nil {
		d.o.Log.Error("a part of the server ended", "part", what, "err", err)
		d.health.Set(what, false, err.Error())
	}
}
