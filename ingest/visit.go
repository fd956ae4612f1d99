package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// rewind is how far before its cursor a host of times is read again: near the join of history and live, such hosts
	// tell things late and out of order. Numbers come in order.
	rewind = 10 * time.Second
	// oldest is how old a cursor may be: the shortest time that public hosts keep events is 24 hours.
	oldest = 20 * time.Hour
	// leap is how much later than it was asked to a host of times may begin before something counts as missed.
	leap = 10 * time.Minute
	// replay is how much earlier than it was asked to a host may begin and still count as the same: newer hosts begin
	// at the start of their current segment (https://github.com/bluesky-social/jetstream/issues/343).
	replay = 2 * time.Hour
	// rejoin is how long such a host may take to come to what it was asked for; one that counts anew does not.
	rejoin = 2 * time.Minute
)

// progress is what a connection brought.
type progress struct {
	from int64 // the cursor that it began with
	last int64 // the position of its last frame; 0: none came
}

// visiting is one connection and what is known of where it stands.
type visiting struct {
	s *Source
	e Endpoint
	// asked is where the host was asked to begin; 0 is live.
	asked int64
	known bool
	gap   *Missed // to be told once the connection is open
	told  bool    // something was missed, and that was told
	// behind is since when the host tells what comes before asked; zero: it does not.
	behind time.Time
	first  bool
	got    progress
}

// once reads one connection to its end. With bare it begins at the cursor itself, and not before it.
func (s *Source) once(ctx context.Context, e Endpoint, bare bool) (progress, error) {
	v := &visiting{s: s, e: e, first: true}
	pos, err := s.c.Cursor(ctx, e)
	if err != nil {
		return v.got, fmt.Errorf("read the cursor: %w", err)
	}
	v.begin(pos, bare)
	ws, err := open(ctx, e.address(v.asked, s.c.Collections, s.hello(e)), s.c.Dial)
	if err != nil {
		return v.got, v.refused(ctx, err)
	}
	k, err := keep(ctx, ws, keeping{clock: s.c.Clock, ping: s.c.Ping, most: e.protocol.most, quiet: func() { s.c.Quiet(e) }})
	if err != nil {
		return v.got, err
	}
	defer k.close()
	defer func() { s.heard = s.c.Clock.Now() }()
	s.c.State(e, true, "connected")
	s.why = ""
	// What was missed is made up for from now on: what happens while that goes on is told by this connection.
	if v.gap != nil {
		if err := v.miss(ctx, *v.gap); err != nil {
			return v.got, err
		}
	}
	if s.hello(e) {
		k.also(func(ctx context.Context) { s.filter(ctx, k) })
	}
	err = v.read(ctx, k)
	return v.got, err
}

// begin decides where to begin.
func (v *visiting) begin(pos Position, bare bool) {
	now := v.s.c.Clock.Now()
	v.known, v.got.from = pos.Known, pos.Value
	if !pos.Known {
		v.gap = &Missed{Reason: cmp.Or(v.s.why, reasonFresh)}
		if !v.e.protocol.numbered {
			v.got.from = v.s.heard.UnixMicro()
			v.gap.To = v.got.from
		}
	}
	if v.e.protocol.numbered {
		if pos.Known && now.Sub(pos.At) > oldest {
			v.gap = &Missed{From: pos.Value, Reason: reasonOld}
		}
		v.asked = pos.Value
		return
	}
	if at := time.UnixMicro(v.got.from); pos.Known && at.After(now.Add(maxAhead)) {
		v.got.from = v.s.heard.UnixMicro()
		v.gap = &Missed{From: pos.Value, To: v.got.from, Reason: reasonFuture, Reset: true}
	} else if pos.Known && now.Sub(at) > oldest {
		v.gap = &Missed{From: pos.Value, To: now.UnixMicro(), Reason: reasonOld}
	}
	v.asked = v.got.from
	if !bare {
		v.asked = max(v.asked-rewind.Microseconds(), 1)
	}
}

// miss tells of a gap, once for each connection.
func (v *visiting) miss(ctx context.Context, m Missed) error {
	if v.told && !m.Reset {
		return nil
	}
	v.told = true
	v.s.c.Log.Warn("a record stream has not told everything; what is missed will be looked up",
		"host", v.e.Host(), "protocol", v.e.protocol.name, "from", m.From, "to", m.To, "reason", m.Reason)
	if err := v.s.c.Missed(ctx, v.e, m); err != nil {
		return fmt.Errorf("take note of what was missed: %w", err)
	}
	return nil
}

// refused makes what follows of an error that the host gave a name: one about the cursor says that it is of no use.
func (v *visiting) refused(ctx context.Context, err error) error {
	var said *HostError
	if !errors.As(err, &said) {
		return err
	}
	m := Missed{From: v.got.from, Reset: true}
	switch said.Name {
	case "FutureCursor":
		m.Reason = reasonFuture
	case "CursorTooOld", "OutdatedCursor":
		m.Reason = reasonRefused
	default:
		return err
	}
	// The cursor is gone now, and the next connection begins live; only from then on can it be made up for.
	v.s.why = m.Reason
	return errors.Join(err, v.miss(ctx, m))
}

// read takes frames until the connection ends.
func (v *visiting) read(ctx context.Context, k *conn) error {
	c, bad := v.s.c, 0
	for {
		msg, err := k.next(v.e.protocol.message)
		var f Frame
		if err == nil {
			f, err = v.e.protocol.parse(msg)
		}
		if errors.Is(err, ErrFrame) {
			c.Bad()
			if bad++; bad == badInARow {
				c.State(v.e, false, fmt.Sprintf("%d messages in a row could not be read: is this %s?", bad, v.e.protocol.name))
			}
			continue
		}
		if err != nil {
			return v.refused(ctx, err)
		}
		if bad >= badInARow {
			c.State(v.e, true, "connected")
		}
		bad = 0
		if err := v.place(ctx, f); err != nil {
			return err
		}
		if f.Pos > 0 {
			v.got.last = f.Pos
		}
		if err := c.Sink(ctx, v.e, f); err != nil {
			return fmt.Errorf("take a frame: %w", err)
		}
	}
}

// place compares where the host stands with where it was asked to begin.
func (v *visiting) place(ctx context.Context, f Frame) error {
	if f.Kind == kindInfo && f.name == "OutdatedCursor" {
		return v.miss(ctx, Missed{From: v.got.from, Reason: reasonRefused})
	}
	if f.Pos <= 0 || !v.first && v.behind.IsZero() {
		return nil
	}
	first := v.first
	v.first = false
	if v.e.protocol.numbered {
		if v.known && f.Pos < v.asked {
			return v.back(ctx, f)
		}
		return nil
	}
	switch {
	case f.Pos >= v.asked:
		v.behind = time.Time{}
		if v.known && first && f.Pos-v.got.from > leap.Microseconds() {
			return v.miss(ctx, Missed{From: v.got.from, To: f.Pos, Reason: reasonClamped})
		}
	case !v.known:
	case v.asked-f.Pos > replay.Microseconds():
		return v.back(ctx, f)
	case v.behind.IsZero():
		v.behind = v.s.c.Clock.Now()
	case v.s.c.Clock.Now().Sub(v.behind) > rejoin:
		return v.back(ctx, f)
	}
	return nil
}

// back is a host that no longer counts as it did when the cursor was taken.
func (v *visiting) back(ctx context.Context, f Frame) error {
	v.behind = time.Time{}
	return v.miss(ctx, Missed{From: v.got.from, To: f.Pos, Reason: reasonBack, Reset: true})
}
