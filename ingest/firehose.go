package ingest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/bluesky-social/indigo/api/atproto"
)

// The raw firehose: com.atproto.sync.subscribeRepos, of a PDS, a relay or a knot. A message is two CBOR objects, a header
// and a body (https://atproto.com/specs/event-stream); the blocks of a commit prove what it says, so nobody between the
// account and this server has to be believed (https://atproto.com/specs/sync).

// skimmed is what a body says of itself, read without decoding it.
type skimmed struct {
	did, time  string
	seq        int64
	name, text string // of an info or an error
}

// parseFirehose reads one message. What is no frame is ErrFrame; what the host says went wrong is a *HostError.
func parseFirehose(msg []byte) (Frame, error) {
	c := cbor{b: msg}
	op, kind, ok := c.header()
	if !ok {
		return Frame{}, fmt.Errorf("%w: no header of an event stream", ErrFrame)
	}
	body := msg[c.i:]
	s, ok := skimBody(body)
	if !ok {
		return Frame{}, fmt.Errorf("%w: the body is not one CBOR object", ErrFrame)
	}
	switch {
	case op == -1:
		return Frame{}, &HostError{Name: s.name, Message: s.text}
	case op != 1 || !strings.HasPrefix(kind, "#"):
		return Frame{}, fmt.Errorf("%w: neither a message nor an error", ErrFrame)
	}
	f := Frame{DID: s.did, Pos: s.seq, TimeUS: micros(s.time), Kind: kind[1:], name: s.name}
	var err error
	switch f.Kind {
	case KindCommit:
		if f.DID != "" && f.Pos > 0 && !bytes.Contains(body, ours) && !bytes.Contains(body, tooBig) {
			return Frame{Kind: KindCommit, Pos: f.Pos, TimeUS: f.TimeUS}, nil
		}
		err = f.commit(body)
	case KindAccount:
		var m atproto.SyncSubscribeRepos_Account
		if err = m.UnmarshalCBOR(bytes.NewReader(body)); err == nil {
			f.Active = m.Active
			if m.Status != nil {
				f.Status = *m.Status
			}
		}
	case KindSync:
		var m atproto.SyncSubscribeRepos_Sync
		if err = m.UnmarshalCBOR(bytes.NewReader(body)); err == nil {
			f.Rev = m.Rev
		}
	}
	if err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return f, f.check()
}

// commit fills f with the operations of a commit that may concern us. One that is too big to tell them, or that cannot
// be decoded, becomes a sync: whatever the account holds may have changed.
func (f *Frame) commit(body []byte) error {
	var m atproto.SyncSubscribeRepos_Commit
	if err := m.UnmarshalCBOR(bytes.NewReader(body)); err != nil || m.TooBig {
		f.Kind = KindSync
		return nil
	}
	f.Rev = m.Rev
	for _, o := range m.Ops {
		if o == nil {
			continue
		}
		collection, rkey, ok := strings.Cut(o.Path, "/")
		if !ok {
			return fmt.Errorf("an operation without its place")
		}
		f.Ops = append(f.Ops, Op{Action: o.Action, Collection: collection, Rkey: rkey})
	}
	f.proof = m.Blocks
	return nil
}

// What makes a commit worth decoding: the name of a collection of ours, which stands in a body as it is since CBOR has no
// escapes, or the member tooBig with the value true, as then it tells no paths.
var (
	ours   = []byte("tangled.")
	tooBig = []byte("ftooBig\xf5") // 'f' is the head of a text of six bytes
)

// skimBody reads the members of a body that place it. Of a name that comes twice the last counts.
func skimBody(b []byte) (s skimmed, ok bool) {
	c := cbor{b: b}
	n, ok := c.open(cborMap)
	if !ok {
		return s, false
	}
	for range n {
		name, ok := c.text()
		if !ok {
			return s, false
		}
		switch string(name) {
		case "repo", "did":
			var v []byte
			v, ok = c.text()
			s.did = string(v)
		case "time":
			var v []byte
			v, ok = c.text()
			s.time = string(v)
		case "seq":
			s.seq, ok = c.number()
		case "name", "error":
			var v []byte
			v, ok = c.text()
			s.name = string(v)
		case "message":
			var v []byte
			if v, ok = c.text(); !ok {
				return s, false
			}
			s.text = string(v[:min(len(v), 512)])
		default:
			ok = c.skip(0)
		}
		if !ok {
			return s, false
		}
	}
	return s, c.i == len(b)
}

// cbor walks over CBOR (RFC 8949) in the form that the data model allows: definite lengths only. Like scan it decodes
// nothing; blocks of a commit are passed over in one step.
type cbor struct {
	b []byte
	i int
}

// The major types (RFC 8949, section 3.1).
const (
	cborUint = iota
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

// cborDepth bounds how deep values may lie in each other.
const cborDepth = 64

// head takes the head of an item: its major type and its argument.
func (c *cbor) head() (major int, arg uint64, ok bool) {
	if c.i >= len(c.b) {
		return 0, 0, false
	}
	first := c.b[c.i]
	c.i++
	major, low := int(first>>5), first&31
	if low < 24 {
		return major, uint64(low), true
	}
	if low > 27 {
		return 0, 0, false
	}
	n := 1 << (low - 24)
	if len(c.b)-c.i < n {
		return 0, 0, false
	}
	for range n {
		arg = arg<<8 | uint64(c.b[c.i])
		c.i++
	}
	return major, arg, true
}

// open takes the head of a map or an array and gives its length, which is no longer than what is left could hold.
func (c *cbor) open(major int) (n int, ok bool) {
	m, arg, ok := c.head()
	if !ok || m != major || arg > uint64(len(c.b)-c.i) {
		return 0, false
	}
	return int(arg), true
}

func (c *cbor) text() ([]byte, bool) {
	m, n, ok := c.head()
	if !ok || m != cborText || n > uint64(len(c.b)-c.i) {
		return nil, false
	}
	t := c.b[c.i : c.i+int(n)]
	c.i += int(n)
	return t, true
}

// number takes a whole number within the range of int64.
func (c *cbor) number() (int64, bool) {
	m, n, ok := c.head()
	if !ok || m > cborNegative || n > 1<<63-1 {
		return 0, false
	}
	if m == cborNegative {
		return -1 - int64(n), true
	}
	return int64(n), true
}

// skip passes over one item.
func (c *cbor) skip(depth int) bool {
	m, n, ok := c.head()
	if !ok || depth > cborDepth {
		return false
	}
	items := n
	switch m {
	case cborBytes, cborText:
		if n > uint64(len(c.b)-c.i) {
			return false
		}
		c.i += int(n)
		return true
	case cborArray:
	case cborMap:
		if n > uint64(len(c.b)) {
			return false
		}
		items = 2 * n
	case cborTag:
		items = 1
	default:
		return true
	}
	if items > uint64(len(c.b)-c.i) {
		return false
	}
	for range items {
		if !c.skip(depth + 1) {
			return false
		}
	}
	return true
}

// header takes the header of a message: op is 1 for a message and -1 for an error, kind its type.
func (c *cbor) header() (op int64, kind string, ok bool) {
	n, ok := c.open(cborMap)
	if !ok {
		return 0, "", false
	}
	for range n {
		name, ok := c.text()
		if !ok {
			return 0, "", false
		}
		switch string(name) {
		case "op":
			op, ok = c.number()
		case "t":
			var v []byte
			v, ok = c.text()
			kind = string(v)
		default:
			ok = c.skip(0)
		}
		if !ok {
			return 0, "", false
		}
	}
	return op, kind, true
}
