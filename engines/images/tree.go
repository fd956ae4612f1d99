package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// tree is a folder that one unpacker fills. Paths are relative to it, with slashes. Symbolic links in it are followed as
// inside the image: an absolute target begins at the tree's root, and ".." ends there. Every operation goes through
// os.Root besides, which refuses to leave the folder.
type tree struct {
	root *os.Root
	made map[string]bool // real folders that exist
	at   string          // the folder that dir is open for
	open *os.Root
	lost int // folders that gave way to something else
}

// maxLost bounds how often an archive may put something else in a folder's place, since each time costs a look at all
// that is known. Images do it a handful of times, if at all.
const maxLost = 1000

// maxLinks is how many symbolic links one path may go through (path_resolution(7)).
const maxLinks = 40

func newTree(root *os.Root) tree {
	return tree{root: root, made: map[string]bool{}, at: ".", open: root}
}

// close gives the open folder back; the root is the caller's.
func (t *tree) close() {
	if t.open != t.root {
		_ = t.open.Close() // only read
	}
	t.at, t.open = ".", t.root
}

// folder is the folder at p, opened. It stays open for the next entry, which mostly lies in it too.
func (t *tree) folder(p string) (*os.Root, error) {
	if p == t.at {
		return t.open, nil
	}
	t.close()
	if p == "." {
		return t.root, nil
	}
	r, err := t.root.OpenRoot(p)
	if err != nil {
		return nil, err
	}
	t.at, t.open = p, r
	return r, nil
}

// parent follows name up to its last part, makes folders that are missing, and returns the real folder and the
// last part.
func (t *tree) parent(name string) (dir, base string, err error) {
	dir, base = path.Split(name)
	dir, err = t.follow(strings.TrimSuffix(dir, "/"), true)
	return dir, base, err
}

// errMissing is what follow says of a path that is not there.
var errMissing = fmt.Errorf("%w: in the tree", fs.ErrNotExist)

// follow resolves p to a path without symbolic links. With create, folders that are missing are made.
func (t *tree) follow(p string, create bool) (string, error) {
	rest := split(p)
	var at []string
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			at = at[:max(0, len(at)-1)]
			continue
		}
		next := path.Join(append(at, part)...)
		if t.made[next] {
			at = append(at, part)
			continue
		}
		st, err := t.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && create:
			if err := t.root.Mkdir(next, 0o755); err != nil {
				return "", fmt.Errorf("images: make the folder %q: %w", clip(next, 200), err)
			}
			t.made[next] = true
			at = append(at, part)
		case errors.Is(err, fs.ErrNotExist):
			return "", errMissing
		case err != nil:
			return "", fmt.Errorf("images: look at %q: %w", clip(next, 200), err)
		case st.IsDir():
			t.made[next] = true
			at = append(at, part)
		case st.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", fmt.Errorf("%w: a path through more than %d symbolic links", ErrUnsafe, maxLinks)
			}
			to, err := t.root.Readlink(next)
			if err != nil {
				return "", fmt.Errorf("images: read the link %q: %w", clip(next, 200), err)
			}
			if path.IsAbs(to) {
				at = at[:0]
			}
			if rest = append(split(to), rest...); len(rest) > maxPath {
				return "", fmt.Errorf("%w: a path of too many parts", ErrUnsafe)
			}
		case len(rest) == 0 && !create:
			return next, nil // a file at the end
		default:
			return "", fmt.Errorf("%w: a file where a folder should be: %q", ErrUnsafe, clip(next, 100))
		}
	}
	if len(at) == 0 {
		return ".", nil
	}
	return path.Join(at...), nil
}

// split is the parts of a path that mean something.
func split(p string) []string {
	var out []string
	for _, part := range strings.Split(p, "/") {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	return out
}

// dir makes sure that there is a folder at p, whose parent is real. What is there and is no folder goes.
func (t *tree) dir(p string) error {
	if t.made[p] {
		return nil
	}
	err := t.replace(p, func(dir *os.Root, base string) error { return dir.Mkdir(base, 0o755) })
	if err != nil {
		return fmt.Errorf("images: make the folder %q: %w", clip(p, 200), err)
	}
	t.made[p] = true
	return nil
}

// replace makes something new at p, whose parent is real, and removes what is there where it must.
func (t *tree) replace(p string, make func(dir *os.Root, base string) error) error {
	dir, err := t.folder(path.Dir(p))
	if err != nil {
		return err
	}
	base := path.Base(p)
	err = make(dir, base)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.made[p] {
		// Everything below it goes, and what is known of that with it.
		if t.lost++; t.lost > maxLost {
			return fmt.Errorf("%w: more than %d folders are replaced", ErrUnsafe, maxLost)
		}
		t.close()
		if err := t.root.RemoveAll(p); err != nil {
			return err
		}
		delete(t.made, p)
		for d := range t.made {
			if strings.HasPrefix(d, p+"/") {
				delete(t.made, d)
			}
		}
		if dir, err = t.folder(path.Dir(p)); err != nil {
			return err
		}
	} else if err := dir.RemoveAll(base); err != nil {
		return err
	}
	return make(dir, base)
}

// touch sets the time of what was just made at p.
func (t *tree) touch(p string, at time.Time) error {
	dir, err := t.folder(path.Dir(p))
	if err != nil {
		return err
	}
	return touch(dir, path.Base(p), at)
}
