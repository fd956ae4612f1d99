package knot

import (
	"context"
	"fmt"
)

// RefHolds says whether ref names the object sha now, as an annotated tag or not, or a commit that has sha among its
// ancestors. Errors: those of RefContains.
func (c *Client) RefHolds(ctx context.Context, src Source, ref, sha string) (bool, error) {
	if err := checkRef(ref); err != nil {
		return false, err
	}
	if err := checkSHA(sha); err != nil {
		return false, err
	}
	list, err := c.lsRemote(ctx, src, ref, ref+"^{}")
	if err != nil {
		return false, fmt.Errorf("resolve %s of %s: %w", ref, src.Repo, err)
	}
	for _, r := range list.raw {
		if r.name == ref && (r.id == sha || r.peeled == sha) {
			return true, nil
		}
	}
	return c.RefContains(ctx, src, ref, sha)
}
