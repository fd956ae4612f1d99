package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"spindle/pipeline"
)

// Specs are the compiled specs of a pipeline's workflows, by name. They are the largest part of a pipeline and
// nobody who looks at one needs them, so the other reads leave them out. A spec that is no longer the one that was
// planned is ErrCorrupt: running something else in its place would not be a repetition.
func (s *Store) Specs(ctx context.Context, id pipeline.ID) (map[string][]byte, error) {
	type row struct {
		name      string
		spec, sum []byte
	}
	rows, err := s.r.query(ctx, "SELECT name, spec, spec_sum FROM workflows WHERE pipeline = ?", string(id))
	list, err := collect(rows, err, "specs", func(scan func(...any) error) (row, error) {
		var w row
		return w, scan(&w.name, &w.spec, &w.sum)
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(list))
	for _, w := range list {
		if have := sha256.Sum256(w.spec); !bytes.Equal(have[:], w.sum) {
			return nil, fmt.Errorf("%w: the spec of %s/%s is not the one that was planned", ErrCorrupt, id, w.name)
		}
		out[w.name] = w.spec
	}
	return out, nil
}
