package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"spindle/engines"
	"spindle/pipeline"
	"spindle/runner"
	"spindle/workflow"
)

// check refuses what must not start, with every reason at once.
func (r *run) check() error {
	if len(r.nodes) == 0 {
		var why []string
		for _, n := range r.plan.NotMatched {
			why = append(why, "  "+n.Name+": "+n.Why)
		}
		if len(why) == 0 {
			return fmt.Errorf("%w: there are no workflow files in %s; `spindle init` writes one", ErrNothing, workflow.Dir)
		}
		return fmt.Errorf("%w:\n%s\nname one with --event, --branch, --tag or --changed, or run it by hand with --event manual", ErrNothing, strings.Join(why, "\n"))
	}
	for _, n := range r.nodes {
		if n.Spec == nil {
			return fmt.Errorf("%w: %s", ErrInvalid, n.Path)
		}
	}
	return errors.Join(r.engines(), r.secrets(), r.steps())
}

// engines sees that every workflow has one, and takes another where that is allowed.
func (r *run) engines() error {
	var have []string
	for _, e := range r.o.Engines {
		have = append(have, e.Name())
	}
	for _, n := range r.nodes {
		want := n.Spec.Engine
		if r.o.Engine != "" {
			want = r.o.Engine
		}
		if !slices.Contains(have, want) {
			if r.o.Engine != "" || r.o.Strict || len(have) == 0 {
				why := r.o.Missing[want]
				if why != "" {
					why = ": " + why
				}
				return fmt.Errorf("%w: %s wants engine %s, which this machine does not have (has: %s)%s", ErrEngine, n.Name, want, strings.Join(have, ", "), why)
			}
			r.notes = append(r.notes, fmt.Sprintf("%s: engine %s runs here as %s: the tools are this machine's, and what the file says of that engine has no effect (--strict-engine refuses)", n.Name, want, have[0]))
			want = have[0]
		}
		if n.Spec.Engine != want {
			spec := *n.Spec
			spec.Engine, spec.Image = want, ""
			n.Spec = &spec
		}
		if img := n.Spec.Image; want == workflow.Sandbox && img != "" && img != workflow.HostImage {
			if r.o.Strict {
				return fmt.Errorf("%w: %s wants the image %s, and this machine's sandbox shows its own tools only", ErrEngine, n.Name, img)
			}
			spec := *n.Spec
			spec.Image = ""
			n.Spec = &spec
			r.notes = append(r.notes, fmt.Sprintf("%s: image %s: this machine's own tools are used in its place (--strict-engine refuses)", n.Name, img))
		}
	}
	return nil
}

// secrets lists those that workflows name and nobody handed over.
func (r *run) secrets() error {
	if r.o.Fork {
		return nil
	}
	users := map[string][]string{}
	for _, n := range r.nodes {
		names := slices.Clone(n.Spec.Secrets.Names)
		for _, s := range n.Spec.Steps {
			names = append(names, s.Secrets.Names...)
		}
		for _, s := range names {
			if _, ok := r.o.Secrets[s]; !ok && !slices.Contains(users[s], n.Name) {
				users[s] = append(users[s], n.Name)
			}
		}
	}
	if len(users) == 0 {
		return nil
	}
	var lines, flags []string
	for s, by := range users {
		lines = append(lines, fmt.Sprintf("  %s (of %s)", s, strings.Join(by, ", ")))
		flags = append(flags, "--secret "+s)
	}
	sort.Strings(lines)
	sort.Strings(flags)
	return fmt.Errorf("%w:\n%s\ngive them with %s (from the environment, or asked for), or with --secrets-file FILE; --as fork runs without any",
		ErrSecrets, strings.Join(lines, "\n"), strings.Join(flags, " "))
}

// steps finds the steps that are wanted alone.
func (r *run) steps() error {
	want := r.o.Step
	if want == "" {
		want = r.o.FromStep
	}
	if want == "" {
		return nil
	}
	var names []string
	found := false
	for _, n := range r.nodes {
		for i, s := range n.Spec.Steps {
			names = append(names, s.Name)
			if s.Name == want || strconv.Itoa(i+1) == want {
				found, n.from, n.found = true, i, true
				if r.o.Step != "" {
					n.to = i + 1
				}
				break
			}
		}
	}
	if !found {
		return fmt.Errorf("%w: %q; there are: %s, or a number from 1", ErrStep, want, strings.Join(names, ", "))
	}
	r.nodes = slices.DeleteFunc(r.nodes, func(n *node) bool { return !n.found })
	return nil
}

// narrowed is conf for a node of which not all steps run, or whose failures open a shell.
func (r *run) narrowed(n *node, conf runner.Config) runner.Config {
	conf.Step = func(i int) (string, bool) {
		return "it was not asked for", i < n.from || i >= n.to
	}
	if r.o.Shell != nil {
		conf.Ended = func(ctx context.Context, m engines.Attempt, c engines.Command, s pipeline.Step) {
			r.show.pause(func() {
				if err := r.o.Shell(ctx, n.Name, m, c, s); err != nil {
					r.o.Log.Warn("open a shell", "err", err)
				}
			})
		}
	}
	return conf
}
