package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"spindle/daemon"
	"spindle/engines"
	"spindle/engines/alias"
	"spindle/engines/dummy"
	"spindle/engines/sandbox"
	"spindle/internal/clock"
	"spindle/obs"
	"spindle/rbac"
	"spindle/workflow"
)

func serveCommand(environ []string, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run the server",
		Description: "Settings come from the environment. Required: SPINDLE_SERVER_HOSTNAME, SPINDLE_SERVER_OWNER,\n" +
			"SPINDLE_SERVER_KEY_PATH. All that are known:\n  " + strings.Join(settings(), "\n  "),
		Action: func(ctx context.Context, _ *cli.Command) error { return serve(ctx, environ, stderr) },
	}
}

// serve runs the server that environ describes until ctx ends.
func serve(ctx context.Context, environ []string, stderr io.Writer) error {
	c, unused, err := readConfig(ctx, environ)
	if err != nil {
		return fail(exitUsage, err)
	}
	log, err := obs.NewLogger(stderr, c.LogFormat, c.LogLevel)
	if err != nil {
		return fail(exitUsage, err)
	}
	if len(unused) > 0 {
		log.Warn("these settings are known and have no effect here", "settings", strings.Join(unused, " "))
	}
	hosts, err := c.hosts()
	if err != nil {
		return fail(exitUsage, err)
	}
	proxies, err := c.proxies()
	if err != nil {
		return fail(exitUsage, err)
	}
	state, err := filepath.Abs(c.StateDir)
	if err != nil {
		return fail(exitEnv, fmt.Errorf("SPINDLE_SERVER_STATE_DIR: %w", err))
	}
	store, err := newImages(c, state, hosts, log)
	if err != nil {
		return fail(exitEnv, err)
	}
	defer func() {
		if cerr := store.Close(); cerr != nil {
			log.Error("close the store of images", "err", cerr)
		}
	}()
	box, err := newSandbox(filepath.Join(state, "sandbox"), func(s *sandbox.Config) {
		s.Images, s.DefaultImage, s.NoHost, s.Log = store, c.ImageDefault, !c.ImageHost, log
	})
	if err != nil {
		return fail(exitEnv, err)
	}
	proven := &provenSandbox{Engine: box, done: make(chan struct{})}
	places := []engines.Engine{
		alias.New(workflow.Sandbox, proven, alias.Sandbox(c.Nixery)),
		alias.New(workflow.Nixery, proven, alias.Nixery(c.Nixery)),
		alias.New(workflow.Microvm, proven, alias.Microvm(c.Nixery)),
	}
	if c.Dummy {
		places = append(places, dummy.New(dummy.Config{Clock: clock.Real{}}))
	}
	d, err := daemon.Build(ctx, daemon.Options{
		Hostname: c.Hostname, PublicURL: c.PublicURL, Owner: c.Owner, Admins: c.Admins,
		Members: c.Members, Banned: c.Banned, Proxies: proxies, Version: version(),
		Admission: rbac.Admission(c.Admission), KeyPath: c.KeyPath, OIDCKeyPath: c.OIDCKeyPath,
		OIDCIssuer: c.OIDCIssuer, SecretsKeyPath: c.SecretsKey, DBPath: c.DBPath, LogDir: c.LogDir,
		RepoDir: c.RepoDir, StateDir: state, ListenAddr: c.ListenAddr, MetricsAddr: c.MetricsAddr,
		Jetstream: c.Jetstream, OnlyFollowed: c.Followed, NoKnotStreams: !c.KnotStreams, PLC: c.PLC, Dev: c.Dev,
		Hosts: hosts, Git: c.Git, Engines: places,
		Labels: c.Labels, Seats: c.MaxJobs, Timeout: c.Timeout, MaxTimeout: c.MaxTimeout, Drain: c.Drain,
		ReadEvery: c.ReadEvery, LookEvery: c.LookEvery, LateAge: c.LateAge,
		Origins: c.Origins, Clock: clock.Real{}, Log: log,
	})
	if errors.Is(err, daemon.ErrSetting) {
		return fail(exitUsage, err)
	}
	if err != nil {
		return fail(exitEnv, err)
	}
	// The proof that sandboxes work here takes longer than all the rest. The server listens meanwhile, since what it
	// accepts is kept whatever comes, and starts nothing in a sandbox before.
	run, stop := context.WithCancelCause(ctx)
	var proof sync.WaitGroup
	proof.Go(func() {
		if err := proven.prove(ctx, log); err != nil {
			stop(err)
		}
	})
	err = d.Run(run)
	if cause := context.Cause(run); cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop(nil)
	proof.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if cerr := d.Close(closing); cerr != nil && err == nil {
		err = cerr
	}
	return fail(exitEnv, err)
}

// provenSandbox opens attempts only once sandboxes are known to work here.
type provenSandbox struct {
	*sandbox.Engine
	done chan struct{} // closed after the proof
	err  error
}

// prove starts and ends a sandbox, once.
func (p *provenSandbox) prove(ctx context.Context, log *slog.Logger) error {
	defer close(p.done)
	began := time.Now()
	if p.err = probe(ctx, p.Engine); p.err == nil {
		log.Info("the sandbox works", "took", time.Since(began).Round(time.Millisecond))
	}
	return p.err
}

// Open implements engines.Engine.
func (p *provenSandbox) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.Engine.Open(ctx, s)
}

// newSandbox makes the sandbox engine out of this very binary.
func newSandbox(state string, change ...func(*sandbox.Config)) (*sandbox.Engine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	c := sandbox.Config{Runsc: self, StateDir: state, Clock: clock.Real{}}
	for _, f := range change {
		f(&c)
	}
	return sandbox.New(c)
}

// probe starts and ends one sandbox.
func probe(ctx context.Context, e *sandbox.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := e.Probe(ctx)
	return err
}
