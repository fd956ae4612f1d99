// Command gen writes the Go types of the lexicons: lexgen for the types, cbor-gen for their DAG-CBOR.
//
//	go run ./lexicons/internal/gen [-dir lexicons] [-out lexicons]
//
// It works inside the module's directory, offline, and needs no C compiler. It stages everything in a
// temporary directory and touches -out only when all of it was made, so a fault leaves the old code whole.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	dir := flag.String("dir", "lexicons", "directory of the lexicons")
	out := flag.String("out", "", "directory that gets the packages (default: the directory of the lexicons)")
	flag.Parse()
	if *out == "" {
		*out = *dir
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run makes both packages from the lexicons below dir and puts them below out.
func run(ctx context.Context, dir, out string) error {
	tmp, err := os.MkdirTemp("", "lexicons")
	if err != nil {
		return fmt.Errorf("make a staging directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := lexgen(ctx, dir, tmp); err != nil {
		return err
	}
	roots, err := readRoots(dir)
	if err != nil {
		return err
	}
	staged := make([]staging, 0, len(packages))
	for _, p := range packages {
		s, err := stage(p, tmp, roots[p.Name])
		if err != nil {
			return err
		}
		staged = append(staged, s)
	}
	if err := cborgen(ctx, dir, tmp, staged); err != nil {
		return err
	}
	for _, s := range staged {
		if err := s.install(out); err != nil {
			return err
		}
	}
	return nil
}
