package knot

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Ref is a ref of a knot and the commit it names.
type Ref struct {
	Name string // full name, such as "refs/heads/main"
	SHA  string // the commit; of an annotated tag, what the tag names
}

// Heads is what a knot says about its branches.
type Heads struct {
	Default string // full name of the branch that HEAD names; empty if the knot does not tell
	Refs    []Ref  // refs/heads/*, in the knot's order
}

// Heads lists the branches. Names that are not valid ref names are left out. Errors: ErrInvalid,
// ErrRepoNotFound, ErrTooLarge, and those of a fetch.
func (c *Client) Heads(ctx context.Context, src Source) (Heads, error) {
	list, err := c.lsRemote(ctx, src, "HEAD", "refs/heads/*")
	if err != nil {
		return Heads{}, fmt.Errorf("list branches of %s: %w", src.Repo, err)
	}
	out := Heads{Default: list.head}
	for _, r := range list.refs {
		if strings.HasPrefix(r.Name, "refs/heads/") {
			out.Refs = append(out.Refs, r)
		}
	}
	return out, nil
}

// ResolveRef tells which commit ref ("HEAD" or a full name such as "refs/heads/main") names now. Of an
// annotated tag it is the commit below the tag. Errors: ErrInvalid, ErrRefGone, and those of a fetch.
func (c *Client) ResolveRef(ctx context.Context, src Source, ref string) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	list, err := c.lsRemote(ctx, src, ref, ref+"^{}")
	if err != nil {
		return "", fmt.Errorf("resolve %s of %s: %w", ref, src.Repo, err)
	}
	for _, r := range list.refs {
		if r.Name == ref {
			return r.SHA, nil
		}
	}
	return "", fmt.Errorf("resolve %s of %s: %w", ref, src.Repo, ErrRefGone)
}

// tags lists the tags with what they name, for a checkout.
func (c *Client) tags(ctx context.Context, url string) ([]remoteRef, error) {
	list, err := c.lsRemoteURL(ctx, url, "refs/tags/*")
	return list.raw, err
}

// remoteRef is a ref as listed, before annotated tags are looked through.
type remoteRef struct {
	name   string
	id     string
	peeled string // of an annotated tag, what it names; else empty
}

type refList struct {
	head string
	raw  []remoteRef
	refs []Ref
}

func (c *Client) lsRemote(ctx context.Context, src Source, patterns ...string) (refList, error) {
	url, err := src.cloneURL(c.cfg.Dev)
	if err != nil {
		return refList{}, err
	}
	return c.lsRemoteURL(ctx, url, patterns...)
}

func (c *Client) lsRemoteURL(ctx context.Context, url string, patterns ...string) (refList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.lim.Timeout)
	defer cancel()
	args := append([]string{"ls-remote", "--quiet", "--symref", "--", url}, patterns...)
	out, err := c.git.run(ctx, command{op: "ls-remote", args: args, net: c.network(), maxOut: int64(c.lim.Refs) * 160})
	if err != nil {
		return refList{}, fmt.Errorf("list refs of %s: %w", url, err)
	}
	list := parseRefs(out)
	if len(list.raw) > c.lim.Refs {
		return refList{}, fmt.Errorf("%w: the knot lists more than %d refs", ErrTooLarge, c.lim.Refs)
	}
	return list, nil
}

// parseRefs reads the output of git ls-remote --symref. Lines that are not in the form of it, and refs
// whose names this package does not accept, are left out: nobody can ask for them either.
func parseRefs(out []byte) refList {
	var l refList
	at := map[string]int{}
	for line := range bytes.Lines(out) {
		id, name, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		if !ok {
			continue
		}
		if to, ok := strings.CutPrefix(id, "ref: "); ok {
			if name == "HEAD" && checkRef(to) == nil {
				l.head = to
			}
			continue
		}
		if checkSHA(id) != nil {
			continue
		}
		if base, ok := strings.CutSuffix(name, "^{}"); ok {
			if i, ok := at[base]; ok {
				l.raw[i].peeled = id
			}
			continue
		}
		if checkRef(name) == nil {
			at[name] = len(l.raw)
			l.raw = append(l.raw, remoteRef{name: name, id: id})
		}
	}
	for _, r := range l.raw {
		sha := r.id
		if r.peeled != "" {
			sha = r.peeled
		}
		l.refs = append(l.refs, Ref{Name: r.name, SHA: sha})
	}
	return l
}
