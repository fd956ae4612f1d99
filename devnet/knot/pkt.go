package knot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The pkt-line format (gitprotocol-common(5)).
const (
	maxPkt   = 65520 // with its four digits
	maxBand  = maxPkt - 5
	flushPkt = "0000"
)

var errPkt = errors.New("knot: malformed pkt-line")

// readPkt reads one packet. A flush packet is nil without an error.
func readPkt(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil || n > maxPkt || n > 0 && n < 4:
		return nil, fmt.Errorf("%w: length %q", errPkt, head[:])
	case n == 0:
		return nil, nil
	}
	b := make([]byte, n-4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errPkt, err)
	}
	return b, nil
}

// writeBand writes text as packets of one sideband.
func writeBand(w io.Writer, band byte, text []byte) error {
	for len(text) > 0 {
		n := min(len(text), maxBand)
		if _, err := fmt.Fprintf(w, "%04x%c%s", n+5, band, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// update is one ref that a client asks to move.
type update struct {
	old, new, ref string
}

// commands is the first part of a push: everything before the pack.
type commands struct {
	updates  []update
	options  []string
	sideband bool
	raw      []byte // as it came
}

// maxUpdates bounds the refs of one push.
const maxUpdates = 4096

// readCommands reads the commands and push options of a receive-pack request (gitprotocol-pack(5)).
func readCommands(r io.Reader) (commands, error) {
	var c commands
	var raw bytes.Buffer
	in := io.TeeReader(r, &raw)
	var caps []byte
	for {
		p, err := readPkt(in)
		if err != nil {
			return commands{}, err
		}
		if p == nil {
			break
		}
		line := p
		if i := bytes.IndexByte(p, 0); i >= 0 {
			line, caps = p[:i], p[i+1:]
		}
		if bytes.HasPrefix(line, []byte("shallow ")) {
			continue
		}
		f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 3)
		if len(f) != 3 || len(c.updates) == maxUpdates {
			return commands{}, fmt.Errorf("%w: not a command", errPkt)
		}
		c.updates = append(c.updates, update{old: string(f[0]), new: string(f[1]), ref: string(f[2])})
	}
	asked := map[string]bool{}
	for _, f := range bytes.Fields(caps) {
		asked[string(f)] = true
	}
	c.sideband = asked["side-band-64k"]
	for asked["push-options"] {
		p, err := readPkt(in)
		if err != nil {
			return commands{}, err
		}
		if p == nil {
			break
		}
		if len(c.options) < maxUpdates {
			c.options = append(c.options, string(bytes.TrimSuffix(p, []byte("\n"))))
		}
	}
	c.raw = raw.Bytes()
	return c, nil
}

// split takes the answer of receive-pack apart: what the client reads as the report, and the packets of
// the other bands as they are.
func split(answer []byte) (report, others []byte, err error) {
	r := bytes.NewReader(answer)
	for {
		p, err := readPkt(r)
		if err == io.EOF || err == nil && p == nil {
			return report, others, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(p) > 0 && p[0] == 1 {
			report = append(report, p[1:]...)
			continue
		}
		others = fmt.Appendf(others, "%04x%s", len(p)+4, p)
	}
}

// accepted lists the refs that the report says were moved.
func accepted(report []byte) map[string]bool {
	out := map[string]bool{}
	r := bytes.NewReader(report)
	for {
		p, err := readPkt(r)
		if err != nil || p == nil {
			return out
		}
		if ref, ok := bytes.CutPrefix(bytes.TrimSuffix(p, []byte("\n")), []byte("ok ")); ok {
			out[string(ref)] = true
		}
	}
}
