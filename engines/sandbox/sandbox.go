package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"spindle/engines"
	"spindle/internal/clock"
)

// Config sets the engine up.
type Config struct {
	// Runsc is the absolute path of an executable that acts as runsc when started as Argv0. Required.
	Runsc string
	// Argv0 is argument zero for Runsc. Empty means "runsc".
	Argv0 string
	// StateDir is the engine's own folder, created with mode 0700. Required, absolute. One server at a time may
	// use it. It holds what attempts write, so it should be on a disk with room. At most 70 bytes long, since sockets
	// with bounded names lie in it.
	StateDir string
	// Log gets the operator's view. nil discards it.
	Log *slog.Logger
	// Clock stamps Results. nil means the machine's clock.
	Clock clock.Clock
	// BootTimeout is how long a sandbox may take to come up. Zero means 30 s.
	BootTimeout time.Duration
	// Limits apply where a Spec has none. Zero means three quarters of the machine's memory and 4096 processes.
	Limits engines.Limits
	// Disk is how many bytes an attempt may write, temporary files included. Zero means 10 GiB.
	Disk int64
	// Images makes the images ready that a Spec names. nil means that there is only the machine's own.
	Images Images
	// DefaultImage is what a Spec gets that names no image. Empty means engines.ImageHost.
	DefaultImage string
	// NoHost refuses the image that shows the machine's own tools.
	NoHost bool
}

// Images makes an image ready and holds it until it is released. Its errors are *engines.Error.
type Images interface {
	Acquire(ctx context.Context, r engines.ImageRequest) (*engines.Image, error)
}

// Engine runs attempts in gVisor. It implements engines.Engine.
type Engine struct {
	cfg  Config
	self identity
	host *view
	kit  kit

	memory int64 // default bound on an attempt's memory, in bytes

	mu   sync.Mutex
	open map[string]*attempt // by ID
}

// limits of names: a socket's path has at most 107 bytes (unix(7)), and "/a/<12>/r/runsc-a.sock" follows StateDir.
const maxStateDir = 70

// New prepares the state folder and the view of the machine. It starts no process. It fails with an error that
// says the fix when the configuration cannot work; whether sandboxes run at all is Probe's question.
func New(cfg Config) (*Engine, error) {
	if cfg.Argv0 == "" {
		cfg.Argv0 = "runsc"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.BootTimeout == 0 {
		cfg.BootTimeout = 30 * time.Second
	}
	if cfg.Disk == 0 {
		cfg.Disk = defaultDisk
	}
	switch {
	case !filepath.IsAbs(cfg.Runsc):
		return nil, fmt.Errorf("sandbox: Runsc %q is not an absolute path", cfg.Runsc)
	case !filepath.IsAbs(cfg.StateDir):
		return nil, fmt.Errorf("sandbox: StateDir %q is not an absolute path", cfg.StateDir)
	case len(cfg.StateDir) > maxStateDir:
		return nil, fmt.Errorf("sandbox: StateDir %q is longer than %d bytes; use a shorter path", cfg.StateDir, maxStateDir)
	case cfg.BootTimeout < 0 || cfg.Limits.Memory < 0 || cfg.Limits.Pids < 0 || cfg.Disk < 0:
		return nil, errors.New("sandbox: a limit is negative")
	case cfg.NoHost && cfg.Images == nil:
		return nil, errors.New("sandbox: without the machine's own image there must be a store of others")
	}
	if err := os.MkdirAll(filepath.Join(cfg.StateDir, attemptsDir), 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: create the state folder: %w", err)
	}
	e := &Engine{cfg: cfg, self: whoAmI(), memory: machineMemory(), open: map[string]*attempt{}}
	host, err := buildHostView(cfg.StateDir, e.self)
	if err != nil {
		return nil, fmt.Errorf("sandbox: prepare the host image: %w", err)
	}
	e.host = host
	return e, nil
}

// Name implements engines.Engine.
func (e *Engine) Name() string { return "sandbox" }

// Open implements engines.Engine. The sandbox comes up in the background.
func (e *Engine) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, engines.Fault("the attempt was stopped before its sandbox was made", err)
	}
	if err := e.check(&s); err != nil {
		return nil, err
	}
	v, release, err := e.view(ctx, s)
	if err != nil {
		return nil, err
	}
	a := newAttempt(e, s, e.attemptDir(s.ID), v, release)
	e.mu.Lock()
	_, taken := e.open[s.ID]
	if !taken {
		e.open[s.ID] = a
	}
	e.mu.Unlock()
	if taken {
		release()
		return nil, engines.Fault("this attempt is already running", fmt.Errorf("%w: attempt %s is open", engines.ErrBadSpec, s.ID))
	}
	if err := a.start(); err != nil {
		e.forget(s.ID)
		release()
		return nil, engines.Fault("the sandbox could not be prepared", errors.Join(err, os.RemoveAll(a.dir)))
	}
	e.cfg.Log.Debug("attempt opened", "attempt", s.ID, "dir", a.dir)
	return a, nil
}

// check completes a Spec with the defaults and refuses what this engine cannot give.
func (e *Engine) check(s *engines.Spec) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Image == "" {
		s.Image = e.cfg.DefaultImage
	}
	if s.Image == "" {
		s.Image = engines.ImageHost
	}
	if err := e.offers(s); err != nil {
		return err
	}
	if s.Workspace == "" {
		s.Workspace = engines.DefaultWorkspace
	}
	if why := reserved(s.Workspace); why != "" {
		return engines.Fault("the workspace is in a folder that belongs to the machine", fmt.Errorf("%w: workspace %s: %s", engines.ErrBadSpec, s.Workspace, why))
	}
	for _, m := range s.Mounts {
		if why := reserved(m.Target); why != "" {
			return engines.Fault("a folder was to be shown where the machine's own are", fmt.Errorf("%w: mount at %s: %s", engines.ErrBadSpec, m.Target, why))
		}
		if m.Target == s.Workspace || strings.HasPrefix(s.Workspace, m.Target+"/") {
			return engines.Fault("a read-only folder was to cover the workspace", fmt.Errorf("%w: mount at %s covers workspace", engines.ErrBadSpec, m.Target))
		}
		if _, err := os.Stat(m.Source); err != nil {
			return engines.Fault("a folder that the attempt needs is not there", fmt.Errorf("%w: mount %s: %w", engines.ErrBadSpec, m.Target, err))
		}
	}
	return nil
}

// offers refuses an image, or anything else that the Spec asks for, that this engine does not have. An engine that shows
// the machine's own tools only takes their being there for the packages, as whoever chose it knows.
func (e *Engine) offers(s *engines.Spec) error {
	switch {
	case len(s.Needs) > 0 && e.cfg.Images != nil:
		return engines.Fault(fmt.Sprintf("the sandbox does not have what the workflow asks for: %s; it needs a virtual machine", clip(strings.Join(s.Needs, ", "))),
			fmt.Errorf("%w: needs %q", engines.ErrBadSpec, s.Needs))
	case len(s.Packages) > 0 && e.cfg.Images != nil:
		return engines.Fault("the sandbox gives packages only where they are made into an image", fmt.Errorf("%w: packages that were not resolved", engines.ErrBadSpec))
	case s.Image == engines.ImageHost && e.cfg.NoHost:
		return engines.Fault(fmt.Sprintf("image %q is not allowed on this spindle; name another one", engines.ImageHost), fmt.Errorf("%w: %q", engines.ErrUnknownImage, s.Image))
	case s.Image != engines.ImageHost && e.cfg.Images == nil:
		return engines.Fault(fmt.Sprintf("the sandbox has no image %q; use %q or leave the image out", clip(s.Image), engines.ImageHost),
			fmt.Errorf("%w: %q", engines.ErrUnknownImage, s.Image))
	}
	return nil
}

func (e *Engine) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, id)
}

const attemptsDir = "a"

// attemptDir is short, because a socket lies in it, and the same for the same ID.
func (e *Engine) attemptDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(e.cfg.StateDir, attemptsDir, hex.EncodeToString(sum[:6]))
}

// clip bounds what is quoted from a workflow file in a message.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
