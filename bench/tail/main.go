// Command tail measures how long a line takes from the step that writes it to somebody who follows the log over a
// websocket: the step prints its clock, the follower compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"spindle/bench/internal/measure"
	"spindle/devnet/world"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	n := flag.Int("n", 100, "lines that a step prints")
	many := flag.Int("followers", 16, "followers in the last round; a server lets one address have 16 streams")
	flag.Parse()
	w, err := measure.World(ctx, measure.Dummy, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, round := range []struct {
		name      string
		every     time.Duration
		followers int
	}{
		{"tail", 50 * time.Millisecond, 1},
		{"tail_busy", 5 * time.Millisecond, 1},
		{fmt.Sprintf("tail_%d_followers", *many), 50 * time.Millisecond, *many},
	} {
		s, err := follow(ctx, w, round.name, *n, round.every, round.followers)
		if err != nil {
			return err
		}
		s.Print(round.name)
	}
	return nil
}

// follow runs a step that prints n clocks, one every so often, and follows it.
func follow(ctx context.Context, w *world.World, name string, n int, every time.Duration, followers int) (all measure.Samples, err error) {
	repo, err := measure.NewRepo(ctx, w, name)
	if err != nil {
		return nil, err
	}
	// The step waits a second so that everybody is there when it begins to speak.
	var file strings.Builder
	file.WriteString("when: [{event: push, branch: ['**']}]\nengine: dummy\nclone: {skip: true}\nsteps:\n  - name: speak\n    command: |\n      sleep 1\n")
	for range n {
		fmt.Fprintf(&file, "      now; sleep %g\n", every.Seconds())
	}
	sha, err := repo.Commit(ctx, map[string]string{".tangled/workflows/speak.yml": file.String()})
	if err != nil {
		return nil, err
	}
	_, id, err := repo.Notify(ctx, "main", sha)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var g errgroup.Group
	for range followers {
		g.Go(func() error {
			var mine measure.Samples
			err := w.Client(nil).Follow(ctx, repo.DID.String(), id, func(e world.Entry) {
				now := time.Now()
				if e.Data == nil || e.Data.Stream != "stdout" {
					return
				}
				if at, err := strconv.ParseInt(strings.TrimSpace(e.Data.Content), 10, 64); err == nil {
					mine.Add(now.Sub(time.Unix(0, at)))
				}
			})
			if err != nil {
				return err
			}
			if len(mine) != n {
				return fmt.Errorf("a follower saw %d of %d lines", len(mine), n)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			return nil
		})
	}
	return all, g.Wait()
}
