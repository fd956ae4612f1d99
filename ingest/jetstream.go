package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The two versions of Jetstream. Version 1 counts microseconds and takes a new filter on an open connection; version 2
// counts in numbers of the host's own, tells #sync, and says in so many words when it cannot begin where it was asked
// to (https://github.com/bluesky-social/jetstream).

// frameV1 is one message of version 1.
type frameV1 struct {
	DID     string    `json:"did"`
	TimeUS  int64     `json:"time_us"`
	Kind    string    `json:"kind"`
	Commit  *commitV1 `json:"commit"`
	Account *struct {
		Active bool   `json:"active"`
		Status string `json:"status"`
	} `json:"account"`
}

type commitV1 struct {
	Rev        string `json:"rev"`
	Operation  string `json:"operation"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
}

// parseV1 reads one message of Jetstream, version 1. What is no frame is ErrFrame.
func parseV1(msg []byte) (Frame, error) {
	if f, ok := skimV1(msg); ok {
		return f, nil
	}
	var m frameV1
	if err := json.Unmarshal(msg, &m); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	f := Frame{DID: m.DID, Pos: m.TimeUS, TimeUS: m.TimeUS, Kind: m.Kind}
	if f.Kind == KindCommit {
		if m.Commit == nil {
			return Frame{}, fmt.Errorf("%w: a commit without its place", ErrFrame)
		}
		f.Rev = m.Commit.Rev
		f.Ops = []Op{{Action: m.Commit.Operation, Collection: m.Commit.Collection, Rkey: m.Commit.Rkey}}
	}
	if m.Account != nil {
		f.Active, f.Status = m.Account.Active, m.Account.Status
	}
	return f, f.check()
}

// skimV1 reads no more of a message than says whose it is, where it stands, and, of a commit, which collection it is of:
// where that is none of ours, or where there is no more to know, that is all.
func skimV1(msg []byte) (f Frame, ok bool) {
	s := scan{b: msg}
	if !s.eat('{') {
		return Frame{}, false
	}
	var did []byte
	for first := true; ; first = false {
		name, ok := s.member(first)
		if !ok {
			return Frame{}, false
		}
		switch string(name) {
		case "did":
			did, ok = s.text()
		case "time_us":
			f.Pos, ok = s.number()
			f.TimeUS = f.Pos
		case "kind":
			var v []byte
			if v, ok = s.text(); string(v) == KindCommit {
				f.Kind = KindCommit
			} else if ok = ok && string(v) == KindIdentity; ok {
				f.Kind = KindIdentity
			}
		case "commit":
			if f.Kind == KindCommit && len(did) > 0 && f.Pos > 0 {
				ok = s.commit(&f, did)
				return f, ok
			}
			ok = s.skip()
		default:
			ok = s.skip()
		}
		if !ok {
			return Frame{}, false
		}
		if f.Kind == KindIdentity && len(did) > 0 && f.Pos > 0 {
			f.DID = string(did)
			return f, true
		}
	}
}

// place is where a record is, as far as a scan has come to it.
type place struct{ rev, action, collection, rkey []byte }

// take takes the value of a member that is part of a place, and passes over others.
func (p *place) take(s *scan, name string) (ok bool) {
	switch name {
	case "rev":
		p.rev, ok = s.text()
	case "operation":
		p.action, ok = s.text()
	case "collection":
		p.collection, ok = s.text()
	case "rkey":
		p.rkey, ok = s.text()
	default:
		ok = s.skip()
	}
	return ok
}

// whole tells whether nothing of the place is missing.
func (p *place) whole() bool { return len(p.rev) > 0 && len(p.collection) > 0 && len(p.rkey) > 0 }

// commit reads the object of a commit, which is the last member. Of one that is in a collection of ours the rest is
// passed over to the end, so that a message that is broken off counts as that.
func (s *scan) commit(f *Frame, did []byte) bool {
	if !s.eat('{') {
		return false
	}
	var p place
	for first := true; ; first = false {
		if p.whole() && !bytes.Contains(p.collection, ours) {
			return true
		}
		if !first && s.eat('}') {
			break
		}
		name, ok := s.member(first)
		if !ok || !p.take(s, string(name)) {
			return false
		}
	}
	if !p.whole() || !s.eat('}') {
		return false
	}
	if s.space(); s.i != len(s.b) {
		return false
	}
	f.DID, f.Rev = string(did), string(p.rev)
	f.Ops = []Op{{Action: string(p.action), Collection: string(p.collection), Rkey: string(p.rkey)}}
	return true
}

// payloadV2 is the $type of payloads before the '#'.
const payloadV2 = "network.bsky.jetstream.subscribeEvents#"

// frameV2 is one message of version 2.
type frameV2 struct {
	Type    string `json:"$type"`
	Error   string `json:"error"`
	Message string `json:"message"`
	Payload *struct {
		Type       string `json:"$type"`
		Seq        int64  `json:"seq"`
		DID        string `json:"did"`
		Time       string `json:"time"`
		Rev        string `json:"rev"`
		Operation  string `json:"operation"`
		Collection string `json:"collection"`
		Rkey       string `json:"rkey"`
		Active     bool   `json:"active"`
		Status     string `json:"status"`
		Name       string `json:"name"`
	} `json:"payload"`
}

// parseV2 reads one message of Jetstream, version 2. What is no frame is ErrFrame; what the host says went wrong is a
// *HostError.
func parseV2(msg []byte) (Frame, error) {
	if f, ok := skimV2(msg); ok {
		return f, nil
	}
	var m frameV2
	if err := json.Unmarshal(msg, &m); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	p := m.Payload
	switch {
	case m.Type == "error":
		return Frame{}, &HostError{Name: m.Error, Message: m.Message}
	case m.Type != "message" || p == nil:
		return Frame{}, fmt.Errorf("%w: neither a message nor an error", ErrFrame)
	}
	_, kind, _ := strings.Cut(p.Type, "#")
	f := Frame{
		DID: p.DID, Pos: p.Seq, TimeUS: micros(p.Time), Kind: kind, Rev: p.Rev, Active: p.Active, Status: p.Status, name: p.Name,
	}
	if kind == KindCommit {
		f.Ops = []Op{{Action: p.Operation, Collection: p.Collection, Rkey: p.Rkey}}
	}
	return f, f.check()
}

// skimV2 is skimV1 for version 2.
func skimV2(msg []byte) (Frame, bool) {
	s := scan{b: msg}
	if !s.eat('{') {
		return Frame{}, false
	}
	for first := true; ; first = false {
		name, ok := s.member(first)
		if !ok {
			return Frame{}, false
		}
		switch string(name) {
		case "$type":
			var v []byte
			if v, ok = s.text(); string(v) != "message" {
				return Frame{}, false
			}
		case "payload":
			return s.payload()
		default:
			ok = s.skip()
		}
		if !ok {
			return Frame{}, false
		}
	}
}

func (s *scan) payload() (f Frame, ok bool) {
	if !s.eat('{') {
		return Frame{}, false
	}
	var did bool
	var at place
	for first := true; ; first = false {
		name, ok := s.member(first)
		if !ok {
			return Frame{}, false
		}
		var v []byte
		switch string(name) {
		case "$type":
			if v, ok = s.text(); string(v) != payloadV2+KindCommit {
				return Frame{}, false
			}
			f.Kind = KindCommit
		case "seq":
			f.Pos, ok = s.number()
		case "did":
			v, ok = s.text()
			did = len(v) > 0
		case "time":
			v, ok = s.text()
			f.TimeUS = micros(string(v))
		default:
			ok = at.take(s, string(name)) && !bytes.Contains(at.collection, ours)
		}
		if !ok {
			return Frame{}, false
		}
		if f.Kind != "" && f.Pos > 0 && f.TimeUS > 0 && did && at.whole() {
			return f, true
		}
	}
}

// micros reads a datetime of the protocol, or gives 0.
func micros(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UnixMicro() < 0 {
		return 0
	}
	return t.UnixMicro()
}
