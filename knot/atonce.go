package knot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// errNotAtOnce means that a commit cannot be had in one request from this host; git then fetches, and says
// what is wrong.
var errNotAtOnce = errors.New("not in one request")

const (
	maxHaves  = 32   // commits that the knot is told we have
	maxCuts   = 4096 // shallow lines read from a knot
	slowBytes = 1000 // bytes per second below which a transfer counts as stalled
)

// fetchAtOnce fetches commits whole at depth 1 in a single request of git's protocol version 2
// (https://git-scm.com/docs/protocol-v2, "fetch"): the wants are hashes, so there is nothing to list or to
// negotiate first. The pack goes straight into `git index-pack`. It is here for speed alone: `git fetch`
// takes two requests and five processes for the same, which is most of the time of a small fetch.
//
// done is false when git should do it: another kind of fetch, or an answer that is not plainly good.
func (c *Client) fetchAtOnce(ctx context.Context, r bareRepo, f fetch) (done bool, err error) {
	if c.cfg.HTTP == nil || f.filter != "" || f.depth != 1 || !f.keep || f.specs != nil || f.tags {
		return false, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cuts, err := r.cuts()
	if err != nil {
		return false, nil
	}
	pr, pw := io.Pipe()
	type result struct {
		cuts []string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		fresh, err := c.receive(ctx, cancel, f, r.haves(), cuts, pw)
		_ = pw.CloseWithError(err) // nil becomes the end of the pack
		got <- result{fresh, err}
	}()
	// git starts while the knot is still packing.
	_, gerr := c.git.run(ctx, command{op: "index-pack", dir: r.dir, args: []string{"index-pack", "--stdin", "--fix-thin"}, stdin: pr, maxOut: 4 << 10})
	_ = pr.Close() // ends the request if git ended first
	res := <-got
	switch cause := context.Cause(ctx); {
	case errors.Is(res.err, ErrTooLarge) || errors.Is(gerr, ErrTooLarge):
		return true, &GitError{Op: "fetch", Kind: ErrTooLarge}
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		return true, &GitError{Op: "fetch", Kind: ErrTimeout}
	case cause != nil:
		return true, fmt.Errorf("git fetch: %w", cause)
	case res.err != nil || gerr != nil:
		r.tidy()
		return false, nil
	}
	if err := r.keep(append(cuts, res.cuts...), f.wants); err != nil {
		return true, err
	}
	return true, nil
}

// haves names commits that are whole in r, the newest first.
func (r bareRepo) haves() []string {
	list, err := os.ReadDir(filepath.Join(r.dir, refPrefix))
	if err != nil {
		return nil
	}
	type at struct {
		sha string
		mod time.Time
	}
	var all []at
	for _, e := range list {
		if info, err := e.Info(); err == nil && checkSHA(e.Name()) == nil {
			all = append(all, at{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b at) int { return b.mod.Compare(a.mod) })
	var out []string
	for _, a := range all[:min(len(all), maxHaves)] {
		out = append(out, a.sha)
	}
	return out
}

// cuts are the commits at which r's histories are cut off.
func (r bareRepo) cuts() ([]string, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, "shallow"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read shallow file: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// keep writes down that shas are here now: first where histories are cut off, then the refs.
func (r bareRepo) keep(cuts, shas []string) error {
	slices.Sort(cuts)
	text := strings.Join(slices.Compact(cuts), "\n") + "\n"
	if err := replace(filepath.Join(r.dir, "shallow"), text); err != nil {
		return err
	}
	for _, s := range shas {
		if err := replace(filepath.Join(r.dir, refPrefix, s), s+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a small file so that there is never half of it.
func replace(path, text string) error {
	tmp := path + ".lock" // what git would use, and what tidy removes
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// receive asks for f and writes the pack to w. It returns the commits at which the knot cut the history.
func (c *Client) receive(ctx context.Context, cancel context.CancelCauseFunc, f fetch, haves, cuts []string, w io.Writer) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/git-upload-pack", bytes.NewReader(fetchRequest(f.wants, haves, cuts)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Accept", "application/x-git-upload-pack-result")
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("User-Agent", "git/spindle")
	var seen atomic.Int64
	stop := c.watchStall(ctx, cancel, &seen)
	defer stop()
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what mattered has been read
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-git-upload-pack-result" {
		return nil, errNotAtOnce
	}
	return readFetch(bufio.NewReaderSize(&counted{r: resp.Body, n: &seen}, 64<<10), w, f.limit)
}

// watchStall cancels with ErrTimeout when a whole stall period brings too few bytes.
func (c *Client) watchStall(ctx context.Context, cancel context.CancelCauseFunc, seen *atomic.Int64) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(c.lim.Stall)
		defer t.Stop()
		for last := int64(0); ; {
			select {
			case <-end:
				return
			case <-ctx.Done():
				return
			case <-t.C:
				now := seen.Load()
				if float64(now-last) < slowBytes*c.lim.Stall.Seconds() {
					cancel(ErrTimeout)
					return
				}
				last = now
			}
		}
	}()
	return func() { close(end); <-ended }
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// fetchRequest is the body of a fetch command. All arguments are hashes that were checked.
func fetchRequest(wants, haves, cuts []string) []byte {
	var b bytes.Buffer
	line := func(s string) { fmt.Fprintf(&b, "%04x%s\n", len(s)+5, s) }
	line("command=fetch")
	if len(wants[0]) == 64 {
		line("object-format=sha256")
	}
	b.WriteString("0001")
	line("thin-pack")
	line("no-progress")
	line("ofs-delta")
	for _, s := range cuts {
		line("shallow " + s)
	}
	line("deepen 1")
	for _, s := range wants {
		line("want " + s)
	}
	for _, s := range haves {
		line("have " + s)
	}
	line("done")
	b.WriteString("0000")
	return b.Bytes()
}

// readFetch reads the answer: where histories are cut off, then the pack, which goes to w. Anything else is
// errNotAtOnce, and a pack of more than limit bytes is ErrTooLarge.
func readFetch(in *bufio.Reader, w io.Writer, limit int64) (cuts []string, err error) {
	section := ""
	for {
		p, err := readPacket(in)
		if err != nil {
			return nil, err
		}
		line := strings.TrimSuffix(string(p.data), "\n")
		switch {
		case p.end && section == "packfile" && !p.delim:
			return cuts, nil
		case p.delim && section == "shallow-info":
			section = ""
		case p.end:
			return nil, errNotAtOnce
		case section == "" && (line == "shallow-info" || line == "packfile"):
			section = line
		case section == "shallow-info":
			sha, ok := strings.CutPrefix(line, "shallow ")
			// An "unshallow" would need a change that git knows better how to make.
			if !ok || checkSHA(sha) != nil || len(cuts) == maxCuts {
				return nil, errNotAtOnce
			}
			cuts = append(cuts, sha)
		case section == "packfile" && len(p.data) > 1 && p.data[0] == 1:
			if limit -= int64(len(p.data) - 1); limit < 0 {
				return nil, ErrTooLarge
			}
			if _, err := w.Write(p.data[1:]); err != nil {
				return nil, err
			}
		case section == "packfile" && len(p.data) > 0 && p.data[0] == 2: // progress, for people
		default:
			return nil, errNotAtOnce
		}
	}
}

// packet is one pkt-line (https://git-scm.com/docs/protocol-common, "pkt-line Format").
type packet struct {
	data  []byte
	end   bool // a flush or delimiter packet
	delim bool
}

func readPacket(in *bufio.Reader) (packet, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return packet{}, errNotAtOnce
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil, n == 2, n == 3, n > 65520:
		return packet{}, errNotAtOnce
	case n <= 1:
		return packet{end: true, delim: n == 1}, nil
	}
	data := make([]byte, n-4)
	if _, err := io.ReadFull(in, data); err != nil {
		return packet{}, errNotAtOnce
	}
	return packet{data: data}, nil
}
