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
	out, err := p.proveAll(ctx, did, at, collection, names)
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", collection, did, err)
	}
	return out, nil
}

// proveAll proves the named records; those that are gone by now are left out.
func (p *Prover) proveAll(ctx context.Context, did, host, collection string, names []string) ([]Proven, error) {
	proven := make([]Proven, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(listProofs)
	for i, rkey := range names {
		g.Go(func() error {
			r, err := p.RecordAt(gctx, host, did, collection, rkey)
			if errors.Is(err, ErrAbsent) {
				return nil
			}
			proven[i] = r
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
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
	)
	for len(out) < limit {
		page, next, err := p.page(ctx, host, did, collection, cursor, min(listPage, limit-len(out)))
		if err != nil {
			return nil, err
		}
		fresh := 0
		for _, rkey := range page {
			if !seen[rkey] && len(out) < limit {
				seen[rkey] = true
				out, fresh = append(out, rkey), fresh+1
			}
		}
		// A page with nothing new ends the list, so a host cannot keep us turning pages.
		if next == "" || fresh == 0 || len(next) > maxCursor {
			break
		}
		cursor = next
	}
	return out, nil
}

// maxCursor is the longest cursor that is sent back to a host.
const maxCursor = 512

// page asks the host for one page of record keys, and where the next begins.
func (p *Prover) page(ctx context.Context, host, did, collection, cursor string, most int) (names []string, next string, err error) {
	q := url.Values{"repo": {did}, "collection": {collection}, "limit": {strconv.Itoa(most)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	b, err := p.get(ctx, host, "com.atproto.repo.listRecords", q, maxListPage)
	if err != nil {
		return nil, "", err
	}
	var page struct {
		Cursor  string `json:"cursor"`
		Records []struct {
			URI string `json:"uri"`
		} `json:"records"`
	}
	if err := json.Unmarshal(b, &page); err != nil {
		return nil, "", fmt.Errorf("%w: list of records: %w", ErrProof, err)
	}
	if len(page.Records) > maxList {
		return nil, "", fmt.Errorf("%w: a page of %d records", ErrProof, len(page.Records))
	}
	prefix := "at://" + did + "/" + collection + "/"
	for _, r := range page.Records {
		rkey, ok := strings.CutPrefix(r.URI, prefix)
		if !ok {
			return nil, "", fmt.Errorf("%w: list names a record elsewhere", ErrProof)
		}
		names = append(names, rkey)
	}
	return names, page.Cursor, nil
}

// maxEach bounds how many records of one collection Each reads.
const maxEach = 20_000

// Each proves the records of the named collections one by one, page after page, for hosts that do not give a whole
// repo or whose repo is above the limits. yield gets the proven records of a page together. Unlike with Repo,
// nothing follows for a record that does not come: the host chose what to list. Errors: those of Record and ErrProof
// for a list that does not end, or ErrTooBig for one of more than 20,000 records.
func (p *Prover) Each(ctx context.Context, did, host string, collections []string, yield func([]Proven) error) error {
	_, at, err := p.owner(ctx, host, did)
	if err != nil {
		return fmt.Errorf("list the records of %s: %w", did, err)
	}
	for _, collection := range collections {
		if err := p.eachOf(ctx, did, at, collection, yield); err != nil {
			return fmt.Errorf("list %s of %s: %w", collection, did, err)
		}
	}
	return nil
}

func (p *Prover) eachOf(ctx context.Context, did, host, collection string, yield func([]Proven) error) error {
	cursors, total := map[string]bool{}, 0
	seen := map[string]bool{}
	for cursor := ""; ; {
		names, next, err := p.page(ctx, host, did, collection, cursor, listPage)
		if err != nil {
			return err
		}
		fresh := names[:0]
		for _, n := range names {
			if !seen[n] {
				seen[n] = true
				fresh = append(fresh, n)
			}
		}
		if total += len(fresh); total > maxEach {
			return fmt.Errorf("%w: more than %d records", ErrTooBig, maxEach)
		}
		proven, err := p.proveAll(ctx, did, host, collection, fresh)
		if err != nil {
			return err
		}
		if len(proven) > 0 {
			if err := yield(proven); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		// Half a list must not pass for all of it, so a list that turns in circles is an error and no end.
		if cursors[next] || len(fresh) == 0 || len(next) > maxCursor {
			return fmt.Errorf("%w: the pages of the list do not end", ErrProof)
		}
		cursors[next], cursor = true, next
	}
}
