package knot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	maxModules       = 256 << 10 // bytes of .gitmodules
	submoduleFetches = 4         // at once
)

// SubmoduleError says why a submodule cannot be checked out. It is an ErrSubmodule.
type SubmoduleError struct {
	Path      string // from the top of the checkout; empty if it is about .gitmodules as a whole
	Sentence  string // for the user: lower case, no full stop
	Temporary bool   // the other host could not be reached
	Err       error  // the cause; may be nil
}

// Error implements error.
func (e *SubmoduleError) Error() string {
	s := "knot: submodule " + printable(e.Path) + ": " + e.Sentence
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every SubmoduleError an ErrSubmodule.
func (e *SubmoduleError) Is(target error) bool { return target == ErrSubmodule }

// Unwrap gives the cause.
func (e *SubmoduleError) Unwrap() error { return e.Err }

// module is a section of .gitmodules.
type module struct{ name, path, url string }

// storeSubmodules fetches the submodules of out, level by level, each at exactly the commit that the tree
// above it names. modules is the checkout's own .gitmodules.
func (c *Client) storeSubmodules(ctx context.Context, out *Checkout, modules []byte) error {
	type parent struct {
		index   int
		dir     string
		sha     string
		url     string
		modules []byte
	}
	level := []parent{{-1, out.Dir, out.SHA, out.CloneURL, modules}}
	for depth := 1; len(level) > 0; depth++ {
		first := len(out.Submodules)
		for _, p := range level {
			subs, err := c.submodulesOf(ctx, out, p.index, p.dir, p.sha, p.url, p.modules)
			if err != nil {
				return err
			}
			if len(subs) > 0 && depth > c.lim.SubmoduleDepth {
				return &SubmoduleError{Path: subs[0].Path, Sentence: fmt.Sprintf("submodules nest deeper than %d levels", c.lim.SubmoduleDepth)}
			}
			out.Submodules = append(out.Submodules, subs...)
			if len(out.Submodules) > c.lim.Submodules {
				return &SubmoduleError{Path: subs[0].Path, Sentence: fmt.Sprintf("there are more than %d submodules", c.lim.Submodules)}
			}
		}
		fresh := out.Submodules[first:]
		next := make([]parent, len(fresh))
		left := c.lim.CheckoutFetch - dirSize(out.Dir)
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(submoduleFetches)
		for i, s := range fresh {
			g.Go(func() error {
				mods, err := c.storeSubmodule(gctx, s, left)
				next[i] = parent{first + i, s.Dir, s.SHA, s.URL, mods}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		level = level[:0]
		for _, p := range next {
			if len(p.modules) > 0 {
				level = append(level, p)
			}
		}
	}
	return nil
}

// storeSubmodule fetches one submodule into its own store and reads its .gitmodules.
func (c *Client) storeSubmodule(ctx context.Context, s Submodule, limit int64) ([]byte, error) {
	fail := func(err error) error {
		why, ok := Sentence(err)
		if !ok {
			why = "it could not be fetched"
		}
		return &SubmoduleError{Path: s.Path, Sentence: fmt.Sprintf("submodule %s cannot be fetched: %s", printable(s.Path),
			strings.ReplaceAll(why, "the knot", "its host")), Temporary: Temporary(err), Err: err}
	}
	if err := writeBare(s.Dir, len(s.SHA) == 64); err != nil {
		return nil, err
	}
	f := fetch{url: s.URL, wants: []string{s.SHA}, specs: []string{"+" + s.SHA + ":" + storeRef}, depth: 1, limit: max(limit, 1)}
	if err := c.fetch(ctx, bareRepo{dir: s.Dir}, f); err != nil {
		return nil, fail(err)
	}
	mods, err := c.inspect(ctx, s.Dir, s.SHA)
	var se *SubmoduleError
	if errors.As(err, &se) {
		se.Path = s.Path
		return nil, se
	}
	if err != nil {
		return nil, fail(err)
	}
	return mods, nil
}

// submodulesOf reads which submodules the commit sha in dir has: those of .gitmodules for whose path the
// tree has a commit.
func (c *Client) submodulesOf(ctx context.Context, out *Checkout, index int, dir, sha, base string, modules []byte) ([]Submodule, error) {
	prefix := ""
	if index >= 0 {
		prefix = out.Submodules[index].Path + "/"
	}
	list, err := c.readModules(ctx, modules)
	if err != nil {
		return nil, &SubmoduleError{Path: prefix + ".gitmodules", Sentence: "the file .gitmodules cannot be read", Err: err}
	}
	links, err := c.gitlinks(ctx, dir, sha, list)
	if err != nil {
		return nil, err
	}
	var subs []Submodule
	for _, m := range list {
		id, ok := links[m.path]
		if !ok {
			continue
		}
		delete(links, m.path)
		full := prefix + m.path
		u, why := submoduleURL(base, m.url, c.cfg.Dev)
		if why != "" {
			return nil, &SubmoduleError{Path: full, Sentence: fmt.Sprintf("the address of submodule %s %s", printable(full), why)}
		}
		n := len(out.Submodules) + len(subs)
		subs = append(subs, Submodule{
			Path: full, Name: m.name, URL: u, SHA: id, parent: index,
			Dir: filepath.Join(out.Dir, "modules", strconv.Itoa(n)),
		})
	}
	return subs, nil
}

// readModules lets git itself read a .gitmodules file, from standard input and without includes, which git follows from there too unless told not to.
// Sections that no careful git would accept are left out.
func (c *Client) readModules(ctx context.Context, data []byte) ([]module, error) {
	raw, err := c.git.run(ctx, command{op: "read .gitmodules", args: []string{"config", "--no-includes", "--null", "--file", "-", "--list"}, stdin: bytes.NewReader(data), maxOut: 2 * maxModules})
	if err != nil {
		return nil, err
	}
	var order []string
	found := map[string]*module{}
	for kv := range bytes.SplitSeq(raw, []byte{0}) {
		key, value, _ := strings.Cut(string(kv), "\n")
		rest, ok := strings.CutPrefix(key, "submodule.")
		dot := strings.LastIndexByte(rest, '.')
		if !ok || dot < 0 {
			continue
		}
		name := rest[:dot]
		m := found[name]
		if m == nil {
			m = &module{name: name}
			found[name], order = m, append(order, name)
		}
		switch rest[dot+1:] {
		case "path":
			m.path = value
		case "url":
			m.url = value
		}
	}
	var out []module
	for _, name := range order {
		if m := found[name]; goodName(m.name) && goodPath(m.path) {
			out = append(out, *m)
		}
	}
	return out, nil
}

// goodPath accepts a plain relative path that stays inside and touches no .git.
func goodPath(p string) bool {
	if p == "" || len(p) > 1024 || path.Clean(p) != p || p[0] == '/' || p[0] == '-' || strings.ContainsRune(p, '\\') || !plain(p) {
		return false
	}
	for part := range strings.SplitSeq(strings.ToLower(p), "/") {
		if part == ".." || part == "." || part == ".git" || strings.HasPrefix(part, "git~") {
			return false
		}
	}
	return true
}

// goodName accepts what can stand in a section header of a configuration file.
func goodName(n string) bool {
	return n != "" && len(n) <= 256 && plain(n) && !strings.Contains(n, "..")
}

// plain says whether s is UTF-8 without control characters.
func plain(s string) bool {
	return strings.ToValidUTF8(s, "\x00") == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// gitlinks finds the commits that the tree of sha has at the paths of list.
func (c *Client) gitlinks(ctx context.Context, dir, sha string, list []module) (map[string]string, error) {
	args := []string{"ls-tree", "-z", "--full-tree", sha, "--"}
	for _, m := range list {
		args = append(args, m.path)
	}
	if len(list) == 0 {
		return nil, nil
	}
	raw, err := c.git.run(ctx, command{op: "ls-tree", dir: dir, args: args, maxOut: 2 * maxModules})
	if err != nil {
		return nil, err
	}
	links := map[string]string{}
	for line := range bytes.SplitSeq(raw, []byte{0}) {
		meta, name, _ := strings.Cut(string(line), "\t")
		f := strings.Fields(meta)
		if len(f) == 3 && f[0] == "160000" && checkSHA(f[2]) == nil {
			links[name] = f[2]
		}
	}
	return links, nil
}

// submoduleURL makes the address to fetch from, relative to base if raw starts with "./" or "../" as git
// has it. why is the end of a sentence about the address, empty if it is good.
func submoduleURL(base, raw string, dev bool) (address, why string) {
	if len(raw) > 2048 || !plain(raw) {
		return "", "is not a valid one"
	}
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		b, err := url.Parse(base)
		if err != nil {
			return "", "is not a valid one"
		}
		parts := strings.Split(strings.Trim(b.EscapedPath(), "/"), "/")
		rest := raw
		for {
			if r, ok := strings.CutPrefix(rest, "../"); ok {
				if len(parts) == 0 {
					return "", "leads out of its host"
				}
				parts, rest = parts[:len(parts)-1], r
			} else if r, ok := strings.CutPrefix(rest, "./"); ok {
				rest = r
			} else {
				break
			}
		}
		raw = b.Scheme + "://" + b.Host + "/" + path.Join(append(parts, rest)...)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme == "" || !strings.Contains(raw, "://"):
		return "", "is not an https address, which is the only kind that is fetched here"
	case !allowedScheme(u.Scheme, dev):
		return "", "is not an https address, which is the only kind that is fetched here"
	case u.User != nil:
		return "", "holds a user name or password, which is not allowed"
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || !hostForm.MatchString(strings.ToLower(u.Hostname())):
		return "", "is not a valid one"
	}
	p := strings.TrimRight(u.EscapedPath(), "/")
	if p == "" || path.Clean(p) != p {
		return "", "is not a valid one"
	}
	return u.Scheme + "://" + strings.ToLower(u.Host) + p, ""
}
