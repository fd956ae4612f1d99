// Command backfill measures how fast the records of many accounts are read as a whole and verified: accounts on one
// PDS over loopback, each with a signed repo of tickets, all of them new to the server. It prints the memory for a
// quarter of the accounts and for all.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spindle/backfill"
	"spindle/bench/internal/measure"
	"spindle/devnet"
	"spindle/identity"
	"spindle/ingest"
	"spindle/internal/clock"
	"spindle/internal/netguard"
	"spindle/knot"
	"spindle/store"
)

func main() { measure.Main(run) }

func run(ctx context.Context) error {
	n := flag.Int("n", 2000, "accounts")
	each := flag.Int("records", 20, "records of each")
	profile := flag.String("cpuprofile", "", "write the processor profile of the reading of all accounts to this file")
	read := flag.String("read", "", "only read the network described by this file, as the process that is measured")
	flag.Parse()
	if *read != "" {
		return profiled(ctx, *read, *profile)
	}
	dir, err := os.MkdirTemp("", "bench-backfill-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	net, err := devnet.Start(ctx, devnet.Config{Dir: filepath.Join(dir, "network")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	measure.Note("making %d accounts with %d records", *n, *each)
	dids, err := accounts(ctx, net, *n, *each)
	if err != nil {
		return err
	}
	for _, some := range []int{*n / 4, *n} {
		file := filepath.Join(dir, fmt.Sprintf("%d.txt", some))
		lines := append([]string{net.PLCURL(), filepath.Join(dir, fmt.Sprintf("%d.db", some))}, dids[:some]...)
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			return fmt.Errorf("describe the network: %w", err)
		}
		// A process of its own, so that the network's memory is not in the figure.
		cmd := exec.CommandContext(ctx, os.Args[0], "-cpuprofile", *profile, "-read", file)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("read %d accounts: %w", some, err)
		}
		fmt.Print(string(out))
	}
	return err
}

const served = "did:plc:servedservedservedserved"

// accounts makes accounts with tickets about a repository that is served.
func accounts(ctx context.Context, net *devnet.Net, n, each int) ([]string, error) {
	dids := make([]string, 0, n)
	for i := range n {
		a, err := net.CreateAccount(ctx, fmt.Sprintf("a%d.test", i))
		if err != nil {
			return nil, err
		}
		for j := range each {
			if _, _, err := a.Create(devnet.Ticket, map[string]any{
				"$type": devnet.Ticket, "repo": served, "title": fmt.Sprintf("number %d", j), "kind": "pull", "createdAt": "2026-01-01T00:00:00Z",
			}); err != nil {
				return nil, err
			}
		}
		dids = append(dids, a.DID.String())
	}
	return dids, nil
}

type nobody struct{}

func (nobody) Locate(context.Context, string) (knot.Source, error) {
	return knot.Source{}, identity.ErrUnreachable
}
func (nobody) Tips(context.Context, knot.Source) ([]knot.Ref, error) {
	return nil, identity.ErrUnreachable
}

// profiled is reader, with a profile of the processor's time in the file named.
func profiled(ctx context.Context, file, profile string) (err error) {
	if profile == "" {
		return reader(ctx, file)
	}
	out, err := os.Create(profile)
	if err != nil {
		return fmt.Errorf("create the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return errors.Join(fmt.Errorf("profile: %w", err), out.Close())
	}
	err = reader(ctx, file)
	pprof.StopCPUProfile()
	return errors.Join(err, out.Close())
}

// reader is the server's part: it reads the accounts that the file lists.
func reader(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the description: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	dids := lines[2:]
	owner := "did:plc:ownerownerownerownerowne"
	s, err := store.Open(ctx, store.Config{Path: lines[1], Owner: owner, Members: dids})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Accept(ctx, store.Effects{Repos: []store.RepoBinding{{
		Repo: served, Owner: dids[0], Rkey: "self", Name: "hello", Knot: "knot.test", VerifiedAt: time.Now(),
	}}}); err != nil {
		return err
	}
	client := netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{Timeout: 20 * time.Second})
	dir := identity.NewDirectory(identity.DirectoryConfig{PLCURL: lines[0], Client: client, Dev: true})
	prover := identity.NewProver(identity.ProverConfig{Directory: dir, Client: client})
	log := slog.New(slog.DiscardHandler)
	in := ingest.New(ingest.Config{
		Store: s, Prover: prover, Clock: clock.Real{}, Log: log, Count: func(string) {}, Health: func(string, bool, string) {},
	})
	b := backfill.New(backfill.Config{
		Store: s, Reader: prover, Knots: nobody{}, Intake: in, Clock: clock.Real{}, Log: log,
		Collections: ingest.AccountCollections(), Binding: ingest.Binding(),
	})
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- b.Run(run) }()
	for {
		c, err := s.CountBackfills(ctx)
		if err == nil && c.Done >= len(dids) {
			break
		}
		select {
		case err := <-done:
			stop()
			return errors.Join(errors.New("the reading ended"), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	took := time.Since(began)
	stop()
	if err := <-done; err != nil {
		return err
	}
	name := fmt.Sprintf("backfill_%d", len(dids))
	measure.Print(name+"_accounts_per_second", float64(len(dids))/took.Seconds(), "1/s")
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return fmt.Errorf("read the processor time: %w", err)
	}
	cpu := time.Duration(use.Utime.Nano() + use.Stime.Nano())
	measure.Print(name+"_cpu_per_account", measure.Millis(cpu)/float64(len(dids)), "ms")
	most, err := peak()
	if err != nil {
		return err
	}
	measure.Print(name+"_rss_peak", most, "MiB")
	return nil
}

// peak is the most memory that this process has had (VmHWM of proc_pid_status(5)).
func peak() (float64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the memory: %w", err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := strings.CutPrefix(string(line), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("the system does not tell the memory")
}
