package knot

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"time"

	version "github.com/hashicorp/go-version"
)

// MinGit is the oldest git that works here: `cat-file --batch-command` with partial clones needs it.
const MinGit = "2.39.0"

// Git is the system's git program, found and checked. Make it with FindGit; it is safe for concurrent use.
type Git struct {
	path    string
	version string
	rules   []rule
}

var versionText = regexp.MustCompile(`^git version (\d+(?:\.\d+){1,3})`)

// FindGit looks git up (path "" means in PATH, otherwise the program at path) and checks its version.
// Errors: ErrGitMissing, ErrGitTooOld; both name the way out.
func FindGit(ctx context.Context, path string) (*Git, error) {
	if path == "" {
		path = "git"
	}
	full, err := exec.LookPath(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %q; install git %s or newer, or set the path of the program", ErrGitMissing, path, MinGit)
	}
	g := &Git{path: full, rules: rules()}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := g.run(ctx, command{op: "version", args: []string{"version"}, maxOut: 4 << 10})
	if err != nil {
		return nil, fmt.Errorf("%w: %s does not run: %w", ErrGitMissing, full, err)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("%w: %s does not tell a version", ErrGitMissing, full)
	}
	have, err := version.NewVersion(string(m[1]))
	if err != nil {
		return nil, fmt.Errorf("%w: read the version of %s: %w", ErrGitMissing, full, err)
	}
	if have.LessThan(version.Must(version.NewVersion(MinGit))) {
		return nil, fmt.Errorf("%w: %s is %s, needed is %s or newer; upgrade git, or set the path of a newer one",
			ErrGitTooOld, full, have, MinGit)
	}
	g.version = have.String()
	return g, nil
}

// Version is the version found, such as "2.39.5".
func (g *Git) Version() string { return g.version }

// Path is the program's absolute path.
func (g *Git) Path() string { return g.path }
