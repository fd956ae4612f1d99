package knot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/lexicon"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/lexicons"
)

// unmarshaler is what the generated record types are.
type unmarshaler = cbg.CBORUnmarshaler

// Limits bound what a knot can make us do. A zero field means its default.
type Limits struct {
	// Timeout bounds one git fetch. Default 60 s.
	Timeout time.Duration
	// CheckoutTimeout bounds one fetch for a checkout. Default 10 min.
	CheckoutTimeout time.Duration
	// Stall is how long a transfer may stay below 1000 bytes/s. Rounded down to seconds, at least 1 s.
	// Default 20 s.
	Stall time.Duration
	// SmallFetch is how many bytes may be fetched to get a commit whole for its workflow files; a larger
	// one is fetched without file contents. Default 8 MiB.
	SmallFetch int64
	// TreeFetch bounds a fetch of commits, trees and workflow files alone. Default 256 MiB.
	TreeFetch int64
	// CheckoutFetch bounds the fetch for a checkout, each submodule by itself. Default 2 GiB.
	CheckoutFetch int64
	// Packs is how many fetches a cached repository takes before it is started anew. Default 50.
	Packs int
	// Refs bounds the refs read from a knot in one listing. Default 20,000.
	Refs int
	// Collaborators bounds the collaborators of one repository. Default 1,000.
	Collaborators int
	// Submodules bounds the submodules of a checkout, nested ones included. Default 50.
	Submodules int
	// SubmoduleDepth is how deep submodules may nest. Default 5.
	SubmoduleDepth int
}

func (l Limits) withDefaults() Limits {
	def := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	def(&l.Timeout, time.Minute)
	def(&l.CheckoutTimeout, 10*time.Minute)
	def(&l.Stall, 20*time.Second)
	for p, d := range map[*int64]int64{&l.SmallFetch: 8 << 20, &l.TreeFetch: 256 << 20, &l.CheckoutFetch: 2 << 30} {
		if *p <= 0 {
			*p = d
		}
	}
	for p, d := range map[*int]int{&l.Packs: 50, &l.Refs: 20_000, &l.Collaborators: 1000, &l.Submodules: 50, &l.SubmoduleDepth: 5} {
		if *p <= 0 {
			*p = d
		}
	}
	return l
}

// Config is what a Client is made of.
type Config struct {
	// Git is the git program, from FindGit. Required.
	Git *Git
	// RepoDir is where cached repositories lie; made if it is not there. Absolute. Required.
	RepoDir string
	// ProxyURL is the guarded proxy that git goes through. Required, except with Dev, where empty means
	// no proxy. It holds a credential.
	ProxyURL string
	// HTTP is a guarded client without a timeout of its own, for fetching one commit in one request. Nil
	// means that git does every fetch, which costs about twice the time.
	HTTP *http.Client
	// Directory resolves DIDs. Required.
	Directory Directory
	// Prover fetches records with their proof. Required.
	Prover Prover
	// Dev allows plain http.
	Dev bool
	// Limits bound what a knot can make us do.
	Limits Limits
	// Log takes notes on fetches that were started over; nil means none.
	Log *slog.Logger
}

// Client reads from knots. Make it with New; it is safe for concurrent use and holds nothing to close.
type Client struct {
	cfg     Config
	git     *Git
	lim     Limits
	log     *slog.Logger
	catalog lexicon.Catalog

	mu    sync.Mutex
	locks map[string]*repoLock
}

// New checks c and returns a client.
func New(c Config) (*Client, error) {
	switch {
	case c.Git == nil:
		return nil, errors.New("knot: Config.Git is missing")
	case !filepath.IsAbs(c.RepoDir):
		return nil, errors.New("knot: Config.RepoDir must be an absolute path")
	case c.ProxyURL == "" && !c.Dev:
		return nil, errors.New("knot: Config.ProxyURL is missing")
	case c.Directory == nil || c.Prover == nil:
		return nil, errors.New("knot: Config.Directory and Config.Prover must be there")
	}
	catalog, err := lexicons.NewCatalog()
	if err != nil {
		return nil, fmt.Errorf("knot: %w", err)
	}
	if err := os.MkdirAll(c.RepoDir, 0o700); err != nil {
		return nil, fmt.Errorf("knot: make the repository directory: %w", err)
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Client{cfg: c, git: c.Git, lim: c.Limits.withDefaults(), log: log, catalog: catalog, locks: map[string]*repoLock{}}, nil
}

// network is what a fetching command of this client may use.
func (c *Client) network() *network {
	n := &network{proxy: c.cfg.ProxyURL, http: c.cfg.Dev, stall: c.lim.Stall, helper: "https"}
	if c.cfg.Dev {
		n.helper = "https:http"
	}
	return n
}

// repoLock lets one caller at a time work on the cached repositories of one DID.
type repoLock struct {
	slot chan struct{}
	refs int
}

// lock waits for the turn on key, or for ctx to end.
func (c *Client) lock(ctx context.Context, key string) (unlock func(), err error) {
	c.mu.Lock()
	l := c.locks[key]
	if l == nil {
		l = &repoLock{slot: make(chan struct{}, 1)}
		c.locks[key] = l
	}
	l.refs++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(c.locks, key)
		}
	}
	select {
	case l.slot <- struct{}{}:
		return func() { <-l.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for repository %s: %w", key, ctx.Err())
	}
}
