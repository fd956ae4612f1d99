package plain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"spindle/engines"
	"spindle/internal/clock"
)

// Config sets the engine up.
type Config struct {
	// Name is the word of workflow files that this engine answers to. Empty means "sandbox", in whose place it stands.
	Name string
	// Dir is the engine's own folder, made when it is missing. Required, absolute.
	Dir string
	// Home is the home of commands, and Env what of the account's environment they get: PATH, LANG and the like.
	Home string
	Env  []string
	// Workspace, if not empty, is the folder that every attempt works in, which is then not made and not removed.
	Workspace string
	// Keep, if not empty, is an existing folder to which the workspaces of attempts are moved when they are closed.
	Keep string
	// Clock stamps Results. nil means the machine's clock.
	Clock clock.Clock
}

// Engine implements engines.Engine without isolation.
type Engine struct {
	c Config

	mu   sync.Mutex
	open map[string]bool
}

// New returns an engine that is ready.
func New(c Config) (*Engine, error) {
	if c.Name == "" {
		c.Name = "sandbox"
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("plain: Dir %q is not an absolute path", c.Dir)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("plain: make its folder: %w", err)
	}
	return &Engine{c: c, open: map[string]bool{}}, nil
}

// Name implements engines.Engine.
func (e *Engine) Name() string { return e.c.Name }

// Open implements engines.Engine.
func (e *Engine) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, engines.Fault("the attempt was stopped before it began", err)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Image != "" && s.Image != engines.ImageHost {
		return nil, engines.Fault(fmt.Sprintf("without isolation there is no image %.64q; leave the image out", s.Image),
			fmt.Errorf("%w: %.64q", engines.ErrUnknownImage, s.Image))
	}
	e.mu.Lock()
	taken := e.open[s.ID]
	e.open[s.ID] = true
	e.mu.Unlock()
	if taken {
		return nil, engines.Fault("this attempt is already running", fmt.Errorf("%w: attempt %s is open", engines.ErrBadSpec, s.ID))
	}
	a := &attempt{e: e, spec: s, dir: filepath.Join(e.c.Dir, s.ID), turn: make(chan struct{}, 1), closed: make(chan struct{})}
	a.turn <- struct{}{}
	a.workspace, a.home = filepath.Join(a.dir, "work"), e.c.Home
	if a.home == "" {
		a.home = filepath.Join(a.dir, "home")
	}
	if e.c.Workspace != "" {
		a.workspace = e.c.Workspace
	}
	err := os.Mkdir(a.dir, 0o700)
	for _, d := range []string{a.workspace, a.home, a.file(0)} {
		if err == nil && strings.HasPrefix(d, a.dir) {
			err = os.MkdirAll(filepath.Clean(d), 0o700)
		}
	}
	if err != nil {
		e.forget(s.ID)
		return nil, engines.Fault("the folder of this attempt could not be made", errors.Join(err, os.RemoveAll(a.dir)))
	}
	return a, nil
}

func (e *Engine) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, id)
}
