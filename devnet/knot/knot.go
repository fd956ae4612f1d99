package knot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/devnet/pds"
	"spindle/internal/clock"
)

// The records that a knot reads.
const (
	manifestNSID     = "org.tangled.repo.manifest"
	manifestRkey     = "self"
	collaboratorNSID = "org.tangled.graph.collaborator"
)

// ErrNoRepo is the answer about a repository that is not here.
var ErrNoRepo = errors.New("knot: no such repository")

// Accounts tells who somebody is.
type Accounts interface {
	// Authenticate turns a handle or DID and the token of that account into its DID.
	Authenticate(user, token string) (syntax.DID, bool)
	// Resolve turns a handle or DID into a DID.
	Resolve(name string) (syntax.DID, bool)
}

// Config makes a Knot. Every field is required.
type Config struct {
	// Dir is the folder of the bare repositories; it must exist.
	Dir string
	// Records holds the record repositories of the git repositories.
	Records *pds.Host
	// Accounts knows the people.
	Accounts Accounts
	// Spindle turns the host name of a spindle into the URL to call it at; false while nobody knows.
	Spindle func(host string) (string, bool)
	// Clock is the time of events.
	Clock clock.Clock
	// Log hears of what no client can be told.
	Log *slog.Logger
}

// Knot is a git host. Make it with New; Close ends and waits for everything it started.
type Knot struct {
	cfg    Config
	git    string // path of the program
	notify *notifier
	older  *events
	newer  *events

	mu     sync.Mutex
	repos  map[syntax.DID]*Repo
	faults StreamFaults
}

// Repo is one git repository on the knot.
type Repo struct {
	DID           syntax.DID
	Owner         syntax.DID
	Name          string
	DefaultBranch string
	Dir           string // the bare repository
}

// New returns a knot without repositories. It needs git.
func New(c Config) (*Knot, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("find git: %w", err)
	}
	k := &Knot{cfg: c, git: git, notify: newNotifier(c), repos: map[syntax.DID]*Repo{}}
	k.older, k.newer = newEvents(c.Clock, false, k.streamFaults), newEvents(c.Clock, true, k.streamFaults)
	return k, nil
}

// Close gives up the notices that are not delivered and waits for their goroutines.
func (k *Knot) Close() { k.notify.close() }

// config is what every bare repository is set up with. Partial and exact fetches are what spindles use;
// hooks and background upkeep would be programs that nobody waits for.
const config = `[http]
	receivepack = true
	getanyfile = false
[uploadpack]
	allowFilter = true
	allowReachableSHA1InWant = true
	allowAnySHA1InWant = true
[receive]
	advertisePushOptions = true
	autogc = false
[gc]
	auto = 0
[core]
	hooksPath = /dev/null
`

// Create makes the bare repository r, empty or, when from is not nil, with everything that from has. Dir
// is filled in.
func (k *Knot) Create(ctx context.Context, r Repo, from *Repo) (*Repo, error) {
	r.Dir = filepath.Join(k.cfg.Dir, strings.ReplaceAll(r.DID.String(), ":", "-")+".git")
	if _, err := k.Git(ctx, "", "init", "-q", "--bare", "-b", r.DefaultBranch, r.Dir); err != nil {
		return nil, err
	}
	if from != nil {
		if _, err := k.Git(ctx, r.Dir, "fetch", "-q", from.Dir, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", r.DID, err)
	}
	_, err = f.WriteString(config)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("configure %s: %w", r.DID, err)
	}
	k.Adopt(&r)
	return &r, nil
}

// Adopt serves a bare repository that another knot made, as when a repository moves.
func (k *Knot) Adopt(r *Repo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.repos[r.DID] = r
}

// Drop serves a repository no more; its files stay.
func (k *Knot) Drop(did syntax.DID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.repos, did)
}

// Repo returns the repository of did.
func (k *Knot) Repo(did syntax.DID) (*Repo, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.repos[did]
	if r == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoRepo, did)
	}
	return r, nil
}

// named finds owner's repository of that name.
func (k *Knot) named(owner syntax.DID, name string) (*Repo, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.repos {
		if r.Owner == owner && r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %s/%s", ErrNoRepo, owner, name)
}

// Git runs git with nothing of this machine's configuration, in the repository dir if it is not empty, and
// returns what it printed.
func (k *Knot) Git(ctx context.Context, dir string, args ...string) (string, error) {
	if dir != "" {
		args = append([]string{"--git-dir", dir}, args...)
	}
	return k.run(ctx, nil, args)
}

// MergeBase is the commit where the commits x of a and y of b parted. The two repositories need not have
// each other's objects.
func (k *Knot) MergeBase(ctx context.Context, a *Repo, x string, b *Repo, y string) (string, error) {
	env := []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(b.Dir, "objects")}
	return k.run(ctx, env, []string{"--git-dir", a.Dir, "merge-base", x, y})
}

func (k *Knot) run(ctx context.Context, env, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, k.git, args...)
	cmd.Env = append(k.env(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// env is the environment of every git: no configuration but the repository's own, no prompts.
func (k *Knot) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + k.cfg.Dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
	}
}

// Handler serves git remotes, /xrpc/ of the record repositories, and the event streams of both generations.
func (k *Knot) Handler() http.Handler {
	mux := http.NewServeMux()
	records := k.cfg.Records.Handler()
	mux.Handle("/xrpc/", records)
	mux.Handle("/.well-known/", records)
	mux.Handle("/events", k.older)
	mux.Handle(pushStream, k.newer)
	mux.HandleFunc("/", k.serveGit)
	return mux
}
