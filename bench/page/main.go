// Command page measures the three pages over HTTP on loopback, as a browser asks for them: the overview of a server
// with five hundred pipelines, one pipeline, and a log of a thousand lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"spindle/bench/internal/measure"
	"spindle/devnet/world"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	n := flag.Int("n", 100, "requests for each page")
	pipelines := flag.Int("pipelines", 500, "pipelines on the server")
	lines := flag.Int("lines", 1000, "lines of the log")
	flag.Parse()
	w, err := measure.World(ctx, measure.Dummy, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	id, err := fill(ctx, w, *pipelines, *lines)
	if err != nil {
		return err
	}
	for _, p := range []struct{ name, path, want string }{
		{"page_overview", "/", "hello"},
		{"page_pipeline", "/p/" + id, "test"},
		{"page_log", "/p/" + id + "/test", fmt.Sprintf("line %d of the log", *lines)},
	} {
		if err := get(ctx, w, p.name, p.path, p.want, *n); err != nil {
			return err
		}
	}
	return nil
}

// fill runs the pipelines and returns the newest one's id; each has the log.
func fill(ctx context.Context, w *world.World, pipelines, lines int) (id string, err error) {
	repo, err := measure.NewRepo(ctx, w, "hello")
	if err != nil {
		return "", err
	}
	var file strings.Builder
	file.WriteString("when: [{event: push, branch: ['**']}]\nengine: dummy\nclone: {skip: true}\nsteps:\n  - name: speak\n    command: |\n")
	for i := range lines {
		fmt.Fprintf(&file, "      echo line %d of the log\n", i+1)
	}
	sha, err := repo.Commit(ctx, map[string]string{".tangled/workflows/test.yml": file.String()})
	if err != nil {
		return "", err
	}
	for i := range pipelines {
		branch := fmt.Sprintf("b%d", i)
		if err := repo.Branch(ctx, branch, sha); err != nil {
			return "", err
		}
		if _, id, err = repo.Notify(ctx, branch, sha); err != nil {
			return "", err
		}
		// One after another, or a newer push would supersede what waits and the logs would be missing.
		if err := w.Client(nil).Follow(ctx, repo.DID.String(), id, func(world.Entry) {}); err != nil {
			return "", err
		}
	}
	return id, nil
}

// get asks for a page n times, after a few that do not count, and checks what it says.
func get(ctx context.Context, w *world.World, name, path, want string, n int) error {
	var took measure.Samples
	size := 0
	for i := range n + 5 {
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+path, nil)
		if err != nil {
			return fmt.Errorf("page %s: %w", path, err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("page %s: %w", path, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return fmt.Errorf("page %s: %w", path, err)
		}
		if res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			return fmt.Errorf("page %s: HTTP %d, and it does not say %q", path, res.StatusCode, want)
		}
		if size = len(body); i >= 5 {
			took.Add(time.Since(began))
		}
	}
	took.Print(name)
	measure.Print(name+"_size", float64(size)/1024, "KiB")
	return nil
}
