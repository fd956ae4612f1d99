package store

import (
	"context"
	"time"
)

// Gap is a stretch of a record stream that was not told.
type Gap struct {
	Source, Host, Protocol string
	// Reason is a short sentence for the operator. There is one gap for each reason: one that comes again while
	// it stands gets the next generation.
	Reason string
	// From and To bound what is missing, in the protocol's own numbers; 0 is unknown.
	From, To int64
	// Generation and OpenedAt are set by the store.
	Generation int64
	OpenedAt   time.Time
}

// openGap notes a gap, or widens the one that stands for the same reason.
func (t *tx) openGap(g Gap) error {
	t.rings = true
	_, err := t.exec(`INSERT INTO gaps (source, host, protocol, reason, generation, from_value, to_value, opened_at)
		VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT (source, host, protocol, reason) DO UPDATE SET generation = generation + 1,
		from_value = min(from_value, excluded.from_value), to_value = max(to_value, excluded.to_value)`,
		g.Source, g.Host, g.Protocol, clip(g.Reason), g.From, g.To, micros(t.now))
	return err
}

// OpenGaps lists the gaps that stand, the oldest first.
func (s *Store) OpenGaps(ctx context.Context) ([]Gap, error) {
	rows, err := s.r.query(ctx, `SELECT source, host, protocol, reason, generation, from_value, to_value, opened_at FROM gaps
		ORDER BY opened_at, source, host, protocol, reason`)
	return collect(rows, err, "read the gaps", func(scan func(...any) error) (g Gap, err error) {
		var at int64
		err = scan(&g.Source, &g.Host, &g.Protocol, &g.Reason, &g.Generation, &g.From, &g.To, &at)
		g.OpenedAt = fromMicros(at)
		return g, err
	})
}

// CloseGap ends a gap that was made up for. One that came again in the meantime stands on; closed is then false.
func (s *Store) CloseGap(ctx context.Context, g Gap) (closed bool, err error) {
	return value(ctx, s, "close a gap", func(t *tx) (bool, error) {
		n, err := t.exec(`DELETE FROM gaps WHERE source = ? AND host = ? AND protocol = ? AND reason = ? AND generation = ?`,
			g.Source, g.Host, g.Protocol, clip(g.Reason), g.Generation)
		return n > 0, err
	})
}
