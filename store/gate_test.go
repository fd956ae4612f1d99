package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/rbac"
)

// TestGateIsNeverOlderThanWhatCanBeRead reads the table of members and then asks the gate, while members come and go:
// what was there to be read, the gate knows.
func TestGateIsNeverOlderThanWhatCanBeRead(t *testing.T) {
	t.Parallel()
	s := newBench(t, func(c *Config) { c.Admission = rbac.Closed })
	ctx := s.ctx()
	const rounds = 300
	did := func(n int) string { return fmt.Sprintf("did:web:m%d.test", n) }
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range rounds {
			if err := s.Allow(ctx, did(n), boss); err != nil {
				t.Errorf("allow: %v", err)
				return
			}
		}
	})
	defer wg.Wait()
	for have := 0; have < rounds; {
		_, err := s.r.get(ctx, "SELECT count(*) FROM members WHERE role = 'member' AND source = 'command'", nil, &have)
		require.NoError(t, err)
		g, err := s.Gate(ctx)
		require.NoError(t, err)
		if have > 0 {
			require.True(t, g.Admit(rbac.Repo{DID: did(have - 1), Owner: did(have - 1)}).Allowed, "member %d", have-1)
		}
	}
}
