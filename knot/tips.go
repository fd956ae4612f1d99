package knot

import (
	"context"
	"fmt"
)

// Tips lists branches and tags with the objects that they name, as a push tells them: an annotated tag is the tag
// itself and not the commit below it. Errors: those of Heads.
func (c *Client) Tips(ctx context.Context, src Source) ([]Ref, error) {
	list, err := c.lsRemote(ctx, src, "refs/heads/*", "refs/tags/*")
	if err != nil {
		return nil, fmt.Errorf("list refs of %s: %w", src.Repo, err)
	}
	out := make([]Ref, 0, len(list.raw))
	for _, r := range list.raw {
		out = append(out, Ref{Name: r.name, SHA: r.id})
	}
	return out, nil
}
