package dummy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"spindle/engines"
	"spindle/internal/clock"
)

// Config sets the engine up.
type Config struct {
	// Clock is what sleep waits on and now prints. nil means the machine's clock.
	Clock clock.Clock
}

// Engine implements engines.Engine in process.
type Engine struct {
	clock clock.Clock

	mu   sync.Mutex
	open map[string]bool // by ID
}

// New returns an engine that is ready.
func New(cfg Config) *Engine {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	return &Engine{clock: cfg.Clock, open: map[string]bool{}}
}

// Name implements engines.Engine.
func (e *Engine) Name() string { return "dummy" }

// Open implements engines.Engine.
func (e *Engine) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, engines.Fault("the attempt was stopped before it began", err)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Image != "" && s.Image != engines.ImageHost {
		return nil, engines.Fault(fmt.Sprintf("the dummy engine has no image %.64q; leave the image out", s.Image),
			fmt.Errorf("%w: %.64q", engines.ErrUnknownImage, s.Image))
	}
	if s.Workspace == "" {
		s.Workspace = engines.DefaultWorkspace
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[s.ID] {
		return nil, engines.Fault("this attempt is already running", fmt.Errorf("%w: attempt %s is open", engines.ErrBadSpec, s.ID))
	}
	e.open[s.ID] = true
	a := &attempt{e: e, spec: s, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	a.turn <- struct{}{}
	return a, nil
}

type attempt struct {
	e    *Engine
	spec engines.Spec
	turn chan struct{} // holds one token: whose turn it is to run

	mu     sync.Mutex
	over   bool
	closed chan struct{} // closed once the attempt is over
}

// Workspace implements engines.Attempt.
func (a *attempt) Workspace() string { return a.spec.Workspace }

// Home implements engines.Attempt.
func (a *attempt) Home() string { return "/home/" + engines.User }

// Mounted implements engines.Attempt.
func (a *attempt) Mounted(target string) string { return target }

// Run implements engines.Attempt.
func (a *attempt) Run(ctx context.Context, c engines.Command) (engines.Result, error) {
	if err := c.Check(); err != nil {
		return engines.Result{}, err
	}
	select {
	case <-a.turn:
		defer func() { a.turn <- struct{}{} }()
	case <-a.closed:
	case <-ctx.Done():
	}
	select {
	case <-a.closed:
		return engines.Result{}, engines.Fault("the attempt has ended", engines.ErrOver)
	default:
	}
	res := engines.Result{Started: a.e.clock.Now()}
	runCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var timer sync.WaitGroup
	if c.Timeout > 0 {
		timer.Go(func() {
			if a.e.clock.Sleep(runCtx, c.Timeout) == nil {
				stop(errTimeout)
			}
		})
	}
	timer.Go(func() {
		select {
		case <-a.closed:
			stop(context.Canceled)
		case <-runCtx.Done():
		}
	})
	files := map[string][]byte{}
	s := shell{files: files, names: c.Files, clock: a.e.clock, env: append(append([]string{"HOME=" + a.Home(), "USER=" + engines.User}, a.spec.Env...), c.Env...), out: c.Stdout, err: c.Stderr}
	code, err := s.run(runCtx, c.Script)
	res.Ended, res.ExitCode = a.e.clock.Now(), code
	if ended := runCtx.Err(); ended != nil {
		res.ExitCode, res.Killed, err = -1, engines.KilledCancel, nil
		if errors.Is(context.Cause(runCtx), errTimeout) {
			res.Killed = engines.KilledTimeout
		}
		a.end()
	}
	if res.Killed == "" && len(files) > 0 {
		res.Files = files
	}
	stop(nil)
	timer.Wait()
	if err != nil {
		return res, engines.Fault("the output could not be stored", err)
	}
	return res, nil
}

var errTimeout = errors.New("dummy: time is over")

func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.over = true
		close(a.closed)
	}
}

// Close implements engines.Attempt. It waits for a command that runs to stop.
func (a *attempt) Close(ctx context.Context) error {
	a.end()
	select {
	case <-a.turn:
		a.turn <- struct{}{}
	case <-ctx.Done():
		return engines.Fault("the attempt is still being stopped", ctx.Err())
	}
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	delete(a.e.open, a.spec.ID)
	return nil
}
