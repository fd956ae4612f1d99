package measure

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"spindle/devnet"
	"spindle/devnet/knot"
	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/dummy"
)

// Dummy is the engine that costs nothing.
func Dummy(string) ([]engines.Engine, error) {
	return []engines.Engine{dummy.New(dummy.Config{})}, nil
}

// World starts a spindle on a small network. The knot keeps its pushes to itself: notices are sent by Notify, which
// knows when.
func World(ctx context.Context, places func(string) ([]engines.Engine, error), seats int) (*world.World, error) {
	w, err := world.Start(ctx, world.Options{Engines: places, Seats: seats, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	w.Net.Knot().SetFaults(knot.Faults{Drop: func(knot.Push) bool { return true }})
	return w, nil
}

// Repo is a repository that the world's spindle serves.
type Repo struct {
	*devnet.Repo
	w    *world.World
	last string // commit of the last notice
}

// NewRepo makes one.
func NewRepo(ctx context.Context, w *world.World, name string) (*Repo, error) {
	r, err := w.Net.CreateRepo(ctx, w.Owner, name, devnet.RepoOptions{Spindle: world.Hostname})
	if err != nil {
		return nil, fmt.Errorf("make the repository %s: %w", name, err)
	}
	return &Repo{Repo: r, w: w, last: strings.Repeat("0", 40)}, w.Client(nil).Served(ctx, r.DID.String())
}

// Commit pushes files to the default branch with git, unknown to the spindle, and returns the commit.
func (r *Repo) Commit(ctx context.Context, files map[string]string) (string, error) {
	p, err := r.Push(ctx, devnet.Change{Files: files})
	if err != nil {
		return "", fmt.Errorf("push to %s: %w", r.Name, err)
	}
	return p.SHA, nil
}

// Branch makes a branch at a commit on the knot, unknown to the spindle.
func (r *Repo) Branch(ctx context.Context, name, sha string) error {
	_, err := r.w.Net.Knot().Git(ctx, r.Git.Dir, "update-ref", "refs/heads/"+name, sha)
	return err
}

// Notify tells the spindle, as the knot does, that a branch is now at sha. It returns when the call began and the
// pipeline that it started.
func (r *Repo) Notify(ctx context.Context, branch, sha string) (began time.Time, pipeline string, err error) {
	call := knot.Call{
		URL: r.w.URL, Issuer: r.DID, Key: r.Key(), Audience: "did:web:" + world.Hostname + "#tangled_spindle",
		Push: knot.Push{Repo: r.DID, Ref: "refs/heads/" + branch, OldSHA: r.last, NewSHA: sha},
	}
	began = time.Now()
	a, err := r.w.Net.Knot().Call(ctx, call)
	if err != nil {
		return began, "", fmt.Errorf("notify the spindle: %w", err)
	}
	if a.Status != http.StatusOK || len(a.Pipelines) != 1 {
		return began, "", fmt.Errorf("the spindle answered %d with %d pipelines: %s %s", a.Status, len(a.Pipelines), a.Error, a.Message)
	}
	r.last = sha
	return began, a.Pipelines[0], nil
}
