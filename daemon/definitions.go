package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"time"

	"spindle/internal/clock"
	"spindle/knot"
	"spindle/store"
	"spindle/trigger"
	"spindle/workflow"
	"spindle/xrpc"
)

// definitions reads workflow files without running anything.
type definitions struct {
	knots *knot.Client
	clock clock.Clock
}

// Definitions implements xrpc.Definitions.
func (d definitions) Definitions(ctx context.Context, repo store.RepoBinding, ref string) ([]xrpc.Definition, error) {
	src, err := d.knots.Locate(ctx, repo.Repo)
	if err != nil {
		return nil, source(err)
	}
	sha, err := d.knots.ResolveRef(ctx, src, ref)
	if err != nil {
		return nil, source(err)
	}
	files, err := d.knots.Workflows(ctx, src, sha)
	if err != nil {
		return nil, source(err)
	}
	out := make([]xrpc.Definition, 0, len(files.Files))
	for _, f := range files.Files {
		out = append(out, definition(repo.Repo, f, sha, d.clock.Now()))
	}
	return out, nil
}

func definition(repo string, f knot.File, sha string, now time.Time) xrpc.Definition {
	spec, diags := workflow.Parse(f.Path, f.Data, workflow.DefaultLimits())
	sum := sha256.Sum256(f.Data)
	d := xrpc.Definition{Name: path.Base(f.Path), Path: f.Path, Commit: sha, Hash: hex.EncodeToString(sum[:])}
	for _, x := range diags {
		d.Diagnostics = append(d.Diagnostics, xrpc.Diagnostic{
			Severity: string(x.Severity), Code: x.Code, Message: x.Message, Hint: x.Fix, Line: x.Line, Column: x.Column,
		})
	}
	if spec == nil {
		return d
	}
	d.Title, d.Engine, d.Next = spec.Name, spec.Engine, trigger.NextDue(repo, f.Path, spec, now)
	seen := map[string]bool{}
	for _, c := range spec.When {
		for _, e := range c.Event {
			if !seen[e] {
				seen[e] = true
				d.Triggers = append(d.Triggers, e)
			}
		}
	}
	return d
}

// source names what went wrong at the knot.
func source(err error) error {
	switch {
	case errors.Is(err, knot.ErrRefGone), errors.Is(err, knot.ErrCommitGone):
		return &xrpc.Error{Code: xrpc.RefNotFound, Message: "the ref was not found at the knot"}
	case knot.Temporary(err):
		return &xrpc.Error{Code: xrpc.UpstreamFailure, Message: "the knot does not answer; try again"}
	}
	return fmt.Errorf("read workflow definitions: %w", err)
}
