package jetstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// The limits of the public servers.
const (
	maxCollections = 100
	maxDIDs        = 10_000
)

// errFilter refuses what a subscriber asked for.
var errFilter = errors.New("jetstream: invalid filter")

// options is the payload of options_update, and the same from the query string.
type options struct {
	WantedCollections []string `json:"wantedCollections"`
	WantedDIDs        []string `json:"wantedDids"`
	MaxMessageSize    int      `json:"maxMessageSizeBytes"`
}

// filter says which events a subscriber wants.
type filter struct {
	names    map[string]bool
	prefixes []string // with the dot at the end
	dids     map[string]bool
	size     int
}

func newFilter(o options) (filter, error) {
	f := filter{size: o.MaxMessageSize}
	slices.Sort(o.WantedCollections)
	wanted := slices.Compact(o.WantedCollections)
	if len(wanted) > maxCollections || len(o.WantedDIDs) > maxDIDs {
		return filter{}, fmt.Errorf("%w: too many collections or DIDs", errFilter)
	}
	if len(wanted) > 0 {
		f.names = map[string]bool{}
	}
	for _, c := range wanted {
		if prefix, ok := strings.CutSuffix(c, "*"); ok {
			if !strings.HasSuffix(prefix, ".") {
				return filter{}, fmt.Errorf("%w: %q", errFilter, c)
			}
			f.prefixes = append(f.prefixes, prefix)
			continue
		}
		if _, err := syntax.ParseNSID(c); err != nil {
			return filter{}, fmt.Errorf("%w: %q", errFilter, c)
		}
		f.names[c] = true
	}
	if len(o.WantedDIDs) > 0 {
		f.dids = map[string]bool{}
	}
	for _, d := range o.WantedDIDs {
		if _, err := syntax.ParseDID(d); err != nil {
			return filter{}, fmt.Errorf("%w: %q", errFilter, d)
		}
		f.dids[d] = true
	}
	return f, nil
}

// wants reports whether e passes. The collection filter is for commits only.
func (f filter) wants(e entry) bool {
	if f.dids != nil && !f.dids[e.DID] || f.size > 0 && len(e.text) > f.size {
		return false
	}
	if e.Commit == nil || f.names == nil {
		return true
	}
	return f.names[e.Commit.Collection] || slices.ContainsFunc(f.prefixes, func(p string) bool {
		return strings.HasPrefix(e.Commit.Collection, p)
	})
}
