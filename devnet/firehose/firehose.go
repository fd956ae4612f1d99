package firehose

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/api/atproto"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/gorilla/websocket"
	"github.com/ipfs/go-cid"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/internal/clock"
)

// Commit is one commit of a repository with its one operation.
type Commit struct {
	DID, Rev, Since string
	Commit          cid.Cid
	// PrevData is the root of the tree before, Prev the record before; undefined where there was none.
	PrevData, Prev cid.Cid
	// Operation is create, update or delete; CID is undefined in a delete.
	Operation, Path string
	CID             cid.Cid
	// Blocks is a CAR of the commit, the path to the record and the record.
	Blocks []byte
}

// Faults is how the stream misbehaves. The zero value is an honest one.
type Faults struct {
	// Silence holds every message back; pings are answered.
	Silence bool
	// Dead sends nothing at all and answers no ping, with the socket open.
	Dead bool
	// TooBig leaves operations and blocks out of every commit that is made from now on.
	TooBig bool
	// Bare leaves the blocks out of every commit that is made from now on.
	Bare bool
	// CutAfter closes each connection abruptly after this many messages. Zero: off.
	CutAfter int
}

// Config makes a Stream.
type Config struct {
	// Clock is the time of messages. Required.
	Clock clock.Clock
	// Ping is the time between pings to a subscriber. Zero means 30 s.
	Ping time.Duration
}

// message is one message with its number.
type message struct {
	seq  int64
	body []byte
}

// Stream is the log and its readers. Make it with New; it is safe for concurrent use.
type Stream struct {
	clock clock.Clock
	ping  time.Duration

	mu       sync.Mutex
	log      []message
	seq      int64
	more     chan struct{} // closed and replaced when anything below the lock changed
	faults   Faults
	connects []string
	conns    map[*websocket.Conn]struct{}
}

// New returns an empty stream.
func New(c Config) *Stream {
	if c.Ping <= 0 {
		c.Ping = 30 * time.Second
	}
	return &Stream{clock: c.Clock, ping: c.Ping, more: make(chan struct{}), conns: map[*websocket.Conn]struct{}{}}
}

// wake tells the readers to look again. The caller holds the lock.
func (s *Stream) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

func (s *Stream) now() string { return s.clock.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// add numbers and keeps what build makes.
func (s *Stream) add(kind string, build func(seq int64, at string) cbg.CBORMarshaler) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := encode(kind, build(s.seq+1, s.now()))
	if err != nil {
		return 0, err
	}
	s.seq++
	s.log = append(s.log, message{s.seq, b})
	s.wake()
	return s.seq, nil
}

// encode is a message: header and body.
func encode(kind string, body cbg.CBORMarshaler) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("\xa2bop\x01at")
	b.Write(cbg.CborEncodeMajorType(cbg.MajTextString, uint64(len(kind))))
	b.WriteString(kind)
	if err := body.MarshalCBOR(&b); err != nil {
		return nil, fmt.Errorf("encode a message %s: %w", kind, err)
	}
	return b.Bytes(), nil
}

func link(c cid.Cid) *lexutil.LexLink {
	if !c.Defined() {
		return nil
	}
	l := lexutil.LexLink(c)
	return &l
}

// Commit tells of a commit.
func (s *Stream) Commit(c Commit) (int64, error) {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	return s.add("#commit", func(seq int64, at string) cbg.CBORMarshaler {
		m := &atproto.SyncSubscribeRepos_Commit{
			Seq: seq, Time: at, Repo: c.DID, Rev: c.Rev, Commit: lexutil.LexLink(c.Commit), PrevData: link(c.PrevData), Blocks: c.Blocks,
			Ops: []*atproto.SyncSubscribeRepos_RepoOp{{Action: c.Operation, Path: c.Path, Cid: link(c.CID), Prev: link(c.Prev)}},
		}
		if c.Since != "" {
			m.Since = &c.Since
		}
		if f.TooBig {
			m.TooBig, m.Ops = true, nil
		}
		if f.TooBig || f.Bare {
			m.Blocks = []byte{}
		}
		return m
	})
}

// Identity tells that a DID document or a handle may have changed.
func (s *Stream) Identity(did, handle string) (int64, error) {
	return s.add("#identity", func(seq int64, at string) cbg.CBORMarshaler {
		m := &atproto.SyncSubscribeRepos_Identity{Seq: seq, Time: at, Did: did}
		if handle != "" {
			m.Handle = &handle
		}
		return m
	})
}

// Account tells whether an account is active.
func (s *Stream) Account(did string, active bool, status string) (int64, error) {
	return s.add("#account", func(seq int64, at string) cbg.CBORMarshaler {
		m := &atproto.SyncSubscribeRepos_Account{Seq: seq, Time: at, Did: did, Active: active}
		if status != "" {
			m.Status = &status
		}
		return m
	})
}

// Sync tells that a repository is in a state that its commits do not lead to.
func (s *Stream) Sync(did, rev string) (int64, error) {
	return s.add("#sync", func(seq int64, at string) cbg.CBORMarshaler {
		return &atproto.SyncSubscribeRepos_Sync{Seq: seq, Time: at, Did: did, Rev: rev, Blocks: []byte{}}
	})
}

// Raw adds a message as it is. It takes a number, whatever it says of itself.
func (s *Stream) Raw(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.log = append(s.log, message{s.seq, b})
	s.wake()
}

// SetFaults replaces the faults, at once for open connections too.
func (s *Stream) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
	s.wake()
}

// Forget drops the messages before the number, as retention does.
func (s *Stream) Forget(before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.log) && s.log[n].seq < before {
		n++
	}
	s.log = append([]message(nil), s.log[n:]...)
}

// Renumber drops everything and goes on after the number, as a host does that was set up anew (0) or that moved its
// numbers on.
func (s *Stream) Renumber(after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.seq = nil, after
}

// Last is the number of the last message.
func (s *Stream) Last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// Connects lists the queries of all subscriptions so far, oldest first.
func (s *Stream) Connects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.connects...)
}

// Subscribers is how many read now.
func (s *Stream) Subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Cut closes every connection abruptly and says how many there were.
func (s *Stream) Cut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.NetConn().Close() // that is what was asked for
	}
	return len(s.conns)
}
