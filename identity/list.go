package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	maxList     = 1000
	maxListPage = 4 << 20
	listPage    = 100 // the largest that com.atproto.repo.listRecords allows
	listProofs  = 4   // proofs fetched at once
)

// List proves the records of one collection, at most limit (and never more than 1,000), in the order the
// host lists them. The host is asked for the names; what it sends as content is thrown away, and each
// record comes with its own proof. host "" means the PDS of did's document.
//
// A host can leave names out, and nothing shows that: use List to find what should be there, not to
// conclude that something is gone. A record that is gone by the time it is proven is left out. Any other
// failure fails the whole list, so that half a list is never taken for all of it.
func (p *Prover) List(ctx context.Context, did, host, collection string, limit int) ([]Proven, error) {
	_, at, err := p.owner(ctx, host, did)
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", collection, did, err)
	}
	names, err := p.names(ctx, at, did, collection, min(limit, maxList))
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", collection, did, err)
	}
	proven := make([]Proven, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(listProofs)
	for i, rkey := range names {
		g.Go(func() error {
			r, err := p.RecordAt(gctx, at, did, collection, rkey)
			if errors.Is(err, ErrAbsent) {
				return nil
			}
			proven[i] = r
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", collection, did, err)
	}
	out := proven[:0]
	for _, r := range proven {
		if r.CID != "" {
			out = append(out, r)
		}
	}
	return out, nil
}

// names asks the host for record keys, page by page.
func (p *Prover) names(ctx context.Context, host, did, collection string, limit int) ([]string, error) {
	var (
		out    []string
		cursor string
		seen   = map[string]bool{}
		prefix = "at://" + did + "/" + collection + "/"
	)
	for len(out) < limit {
		q := url.Values{"repo": {did}, "collection": {collection}, "limit": {strconv.Itoa(min(listPage, limit-len(out)))}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		b, err := p.get(ctx, host, "com.atproto.repo.listRecords", q, maxListPage)
		if err != nil {
			return nil, err
		}
		var page struct {
			Cursor  string `json:"cursor"`
			Records []struct {
				URI string `json:"uri"`
			} `json:"records"`
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return nil, fmt.Errorf("%w: list of records: %w", ErrProof, err)
		}
		fresh := 0
		for _, r := range page.Records {
			rkey, ok := strings.CutPrefix(r.URI, prefix)
			if !ok {
				return nil, fmt.Errorf("%w: list names a record elsewhere", ErrProof)
			}
			if !seen[rkey] && len(out) < limit {
				seen[rkey] = true
				out, fresh = append(out, rkey), fresh+1
			}
		}
		// A page with nothing new ends the list, so a host cannot keep us turning pages.
		if page.Cursor == "" || fresh == 0 || len(page.Cursor) > 512 {
			break
		}
		cursor = page.Cursor
	}
	return out, nil
}
