package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"spindle/daemon"
	"spindle/internal/netguard"
)

// mostStatus bounds what is read of an answer.
const mostStatus = 1 << 20

func statusCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "say how a running server is",
		Description: "spindle status --server https://ci.example.com",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "server", Value: "http://127.0.0.1:6555", Usage: "address of the server"},
			&cli.BoolFlag{Name: "json", Usage: "print what the server says, as JSON"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			body, err := askStatus(ctx, c.String("server"))
			if err != nil {
				return err
			}
			var s daemon.Status
			if err := json.Unmarshal(body, &s); err != nil || s.Hostname == "" {
				return fail(exitEnv, fmt.Errorf("%s does not answer as a spindle does; check --server", c.String("server")))
			}
			text := string(body)
			if !c.Bool("json") {
				text = describe(s)
			}
			if _, err := io.WriteString(stdout, text); err != nil {
				return fail(exitEnv, fmt.Errorf("write the status: %w", err))
			}
			return fail(exitNotRun, unwell(s))
		},
	}
}

// askStatus fetches /_status.
func askStatus(ctx context.Context, server string) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fail(exitUsage, fmt.Errorf("--server %q is not an address such as https://ci.example.com", clipped(server)))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+"/_status", nil)
	if err != nil {
		return nil, fail(exitUsage, err)
	}
	// Whoever runs this names the server: it may well be on this machine.
	client := netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{Timeout: 10 * time.Second})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, fail(exitEnv, fmt.Errorf("ask the server: %w; is it running, and at that address?", err))
	}
	defer func() { _ = resp.Body.Close() }() // what mattered has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostStatus))
	if err != nil {
		return nil, fail(exitEnv, fmt.Errorf("read the server's answer: %w", err))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fail(exitEnv, fmt.Errorf("the server answers %s to /_status; is it a spindle, and not an older one?", resp.Status))
	}
	return body, nil
}

// unwell is what a person should look after; nil is nothing.
func unwell(s daemon.Status) error {
	if s.NotReady != "" {
		return fmt.Errorf("%s is not ready: %s", s.Hostname, printed(s.NotReady))
	}
	var bad []string
	for _, p := range s.Parts {
		if !p.OK {
			bad = append(bad, printed(p.Name))
		}
	}
	if len(bad) > 0 {
		return errors.New("not well: " + strings.Join(bad, ", "))
	}
	return nil
}

// printed is text of a server without what a terminal would obey.
func printed(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

func describe(s daemon.Status) string {
	var b strings.Builder
	ready := "ready"
	if s.NotReady != "" {
		ready = "not ready: " + printed(s.NotReady)
	}
	fmt.Fprintf(&b, "%-13s %s, version %s\n", printed(s.Hostname), ready, printed(s.Version))
	for _, p := range s.Parts {
		sign := "✓"
		if !p.OK {
			sign = "✗"
		}
		fmt.Fprintf(&b, "  %s %-13s %s\n", sign, printed(p.Name), printed(p.Detail))
	}
	a, r, q := s.Backfill, s.Repos, s.Queue
	fmt.Fprintf(&b, "  stream          %d ms behind, %d messages, %d of them ours, %d hints to prove, %d gaps\n",
		s.Stream.LagMS, s.Stream.Seen, s.Stream.Kept, s.Stream.Hints, s.Stream.Gaps)
	fmt.Fprintf(&b, "  accounts        %d of %d read, %d under way, %d wait for their server, %d refused\n",
		a.Done, a.Total, a.Wanted+a.Fetching+a.Applying, a.Waiting, a.Refused)
	fmt.Fprintf(&b, "  repositories    %d of %d compared, %d could not be, %d late pushes, %d not seen yet\n", r.Looked, r.Total, r.Failed, r.Late, r.Unseen)
	fmt.Fprintf(&b, "  queue           %d run, %d wait, %d need an approval, %d events to plan\n", q.Running, q.Waiting, q.Held, q.Events)
	return b.String()
}
