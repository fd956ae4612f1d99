package xrpc

import (
	"context"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
)

// familiar knows the issuers whose tokens are looked at whatever else comes from their address: who brought a
// good token before, who holds a role here, the repositories that are served, and their knots. A bad token in the
// name of one of them costs a signature, and a new look at their document at most once a minute.
type familiar struct {
	good *lru.Cache[string, struct{}]

	mu      sync.Mutex
	read    bool
	version int64
	knots   map[string]bool // by DID
}

func newFamiliar(remembered int) (*familiar, error) {
	good, err := lru.New[string, struct{}](remembered)
	if err != nil {
		return nil, err
	}
	return &familiar{good: good}, nil
}

// add notes that did brought a good token.
func (f *familiar) add(did string) { f.good.Add(did, struct{}{}) }

// knows tells whether did is familiar. Where that cannot be read it is not.
func (f *familiar) knows(ctx context.Context, c Config, did string) bool {
	if f.good.Contains(did) {
		return true
	}
	g, err := c.Policy.Gate(ctx)
	if err != nil {
		return false
	}
	if g.Knows(did) {
		return true
	}
	if !strings.HasPrefix(did, "did:web:") {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Bindings change with the policy, so the list is as old as the policy is.
	if !f.read || f.version != g.Version() {
		repos, err := c.Repos.Repos(ctx)
		if err != nil {
			return false
		}
		f.knots = map[string]bool{}
		for _, b := range repos {
			if !b.Gone {
				f.knots["did:web:"+strings.ReplaceAll(b.Knot, ":", "%3A")] = true
			}
		}
		f.version, f.read = g.Version(), true
	}
	return f.knots[did]
}
