package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of names: what Linux takes (limits.h: PATH_MAX with its zero, NAME_MAX), and a depth that no image needs.
const (
	maxPath  = 4095
	maxName  = 255
	maxDepth = 128
)

// layerMeta is what is known of an unpacked layer beside its files.
type layerMeta struct {
	Diff string `json:"diff"`
	// Bytes and Entries are what the layer is charged.
	Bytes   int64 `json:"bytes"`
	Entries int64 `json:"entries"`
	// Whiteouts are paths that lower layers lose, Opaque folders whose content they lose.
	Whiteouts []string `json:"whiteouts,omitempty"`
	Opaque    []string `json:"opaque,omitempty"`
	// Implicit are folders that the archive needed and did not describe: lower layers say what they are.
	Implicit []string `json:"implicit,omitempty"`
	// Left counts entries that were left out: devices and the like.
	Left int `json:"left,omitempty"`
}

// unpacker writes one archive into one folder. It is a tree's only writer, so what it knows of the tree is true.
type unpacker struct {
	tree  tree
	take  func(entries, bytes int64) error
	chown bool
	meta  layerMeta
	dirs  map[string]attributes // folders that the archive described
	left  map[string]bool       // paths of entries that were left out
}

// attributes are what is set on a folder when everything in it is written.
type attributes struct {
	mode     fs.FileMode
	uid, gid int
	mtime    time.Time
}

func newUnpacker(root *os.Root, chown bool, take func(entries, bytes int64) error) *unpacker {
	return &unpacker{tree: newTree(root), take: take, chown: chown, dirs: map[string]attributes{}, left: map[string]bool{}}
}

// unpack writes everything that r holds.
func (u *unpacker) unpack(r io.Reader) error {
	defer u.tree.close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.badTar(err)
		}
		if err := u.entry(h, t); err != nil {
			return err
		}
	}
	for p := range u.tree.made {
		if _, ok := u.dirs[p]; !ok {
			u.meta.Implicit = append(u.meta.Implicit, p)
		}
	}
	slices.Sort(u.meta.Implicit)
	return u.finishDirs()
}

// badTar keeps the archive's own errors apart from those of the stream below.
func (u *unpacker) badTar(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("a layer is not an archive", err)
	}
	return err
}

// clean checks the name of an entry or a link's target, and gives it relative to the root; "." is the root.
func clean(name string) (string, error) {
	switch {
	case len(name) > maxPath:
		return "", fmt.Errorf("%w: a path of %d bytes", ErrUnsafe, len(name))
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%w: a path with a zero byte", ErrUnsafe)
	}
	parts := strings.Split(name, "/")
	if slices.Contains(parts, "..") {
		return "", fmt.Errorf("%w: a path that points outside: %q", ErrUnsafe, clip(name, 100))
	}
	if len(parts) > maxDepth {
		return "", fmt.Errorf("%w: a path of %d folders", ErrUnsafe, len(parts))
	}
	for _, p := range parts {
		if len(p) > maxName {
			return "", fmt.Errorf("%w: a name of %d bytes", ErrUnsafe, len(p))
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/") + dotIfRoot(name), nil
}

func dotIfRoot(name string) string {
	if path.Clean("/"+name) == "/" {
		return "."
	}
	return ""
}

// Whiteouts: https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	metadata = ".wh..wh." // of aufs, which nobody needs
)

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if err := u.take(1, cost(max(h.Size, 1))); err != nil {
		return err
	}
	u.meta.Bytes += cost(max(h.Size, 1))
	u.meta.Entries++
	if name == "." {
		if h.Typeflag == tar.TypeDir {
			u.dirs["."] = u.attributes(h)
		}
		return nil
	}
	parent, base, err := u.tree.parent(name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(base, whiteout) {
		return u.remember(parent, base)
	}
	at := path.Join(parent, base)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.tree.dir(at); err != nil {
			return err
		}
		u.dirs[at] = u.attributes(h)
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(at, h, content)
	case tar.TypeSymlink:
		return u.symlink(at, h)
	case tar.TypeLink:
		return u.link(at, h)
	}
	u.leave(at)
	return nil
}

// remember keeps a whiteout for when the layers are laid over another.
func (u *unpacker) remember(parent, base string) error {
	switch {
	case base == opaque:
		u.meta.Opaque = append(u.meta.Opaque, parent)
	case strings.HasPrefix(base, metadata):
	default:
		name := strings.TrimPrefix(base, whiteout)
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%w: a whiteout of %q", ErrUnsafe, name)
		}
		u.meta.Whiteouts = append(u.meta.Whiteouts, path.Join(parent, name))
	}
	return nil
}

// leave makes nothing of an entry, and remembers that it was there, since links may name it.
func (u *unpacker) leave(at string) {
	u.left[at] = true
	u.meta.Left++
}

func (u *unpacker) attributes(h *tar.Header) attributes {
	return attributes{mode: mode(h), uid: h.Uid, gid: h.Gid, mtime: h.ModTime}
}

// mode is what of an entry's mode is kept: the bits for reading, writing and executing, and a folder's sticky bit. The
// bits for changing users would count on the server's own disk, and count for nothing in a sandbox, where no process
// gains privileges.
func mode(h *tar.Header) fs.FileMode {
	m := fs.FileMode(h.Mode) & 0o777 //nolint:gosec // masked
	if h.Typeflag == tar.TypeDir && h.Mode&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

func (u *unpacker) file(at string, h *tar.Header, content io.Reader) error {
	var f *os.File
	err := u.tree.replace(at, func(dir *os.Root, base string) (err error) {
		f, err = dir.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		return err
	})
	if err != nil {
		return fmt.Errorf("images: unpack %q: %w", clip(at, 200), err)
	}
	delete(u.left, at)
	n, err := io.Copy(f, content)
	if err == nil && n != h.Size {
		err = damaged("a file is cut", nil)
	}
	if err == nil && u.chown {
		err = f.Chown(owner(h.Uid), owner(h.Gid))
	}
	if err == nil {
		err = f.Chmod(mode(h))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = u.tree.touch(at, h.ModTime)
	}
	if err != nil {
		return u.badTar(fmt.Errorf("images: unpack %q: %w", clip(at, 200), err))
	}
	return nil
}

func (u *unpacker) symlink(at string, h *tar.Header) error {
	if len(h.Linkname) > maxPath || h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) {
		return fmt.Errorf("%w: a symbolic link to a path of %d bytes", ErrUnsafe, len(h.Linkname))
	}
	err := u.tree.replace(at, func(dir *os.Root, base string) error {
		if err := dir.Symlink(h.Linkname, base); err != nil || !u.chown {
			return err
		}
		return dir.Lchown(base, owner(h.Uid), owner(h.Gid))
	})
	if err != nil {
		return fmt.Errorf("images: unpack the link %q: %w", clip(at, 200), err)
	}
	delete(u.left, at)
	return nil
}

// link makes a hard link to a file of the same layer.
func (u *unpacker) link(at string, h *tar.Header) error {
	name, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	parent, base, err := u.tree.parent(name)
	if err != nil {
		return err
	}
	target := path.Join(parent, base)
	if u.left[target] {
		u.leave(at)
		return nil
	}
	st, err := u.tree.root.Lstat(target)
	if err != nil || !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%w: a hard link to what is no file of its layer: %q", ErrUnsafe, clip(h.Linkname, 100))
	}
	if target == at {
		return nil
	}
	err = u.tree.replace(at, func(dir *os.Root, base string) error { return u.tree.root.Link(target, at) })
	if err != nil {
		return fmt.Errorf("images: unpack the link %q: %w", clip(at, 200), err)
	}
	delete(u.left, at)
	return nil
}

// finishDirs sets what the archive says of folders, inner ones first, since a folder may forbid to write in it.
func (u *unpacker) finishDirs() error {
	paths := make([]string, 0, len(u.dirs))
	for p := range u.dirs {
		if u.tree.made[p] || p == "." {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(b, a) })
	for _, p := range paths {
		if err := setDir(u.tree.root, p, u.dirs[p], u.chown); err != nil {
			return fmt.Errorf("images: unpack the folder %q: %w", clip(p, 200), err)
		}
	}
	return nil
}

// setDir sets a folder's attributes. A server that is not root must be able to remove what it unpacked, so there the
// owner keeps every right.
func setDir(root *os.Root, p string, a attributes, chown bool) error {
	m := a.mode
	if chown {
		if err := root.Lchown(p, owner(a.uid), owner(a.gid)); err != nil {
			return err
		}
	} else {
		m |= 0o700
	}
	if err := root.Chmod(p, m); err != nil {
		return err
	}
	return touch(root, p, a.mtime)
}

// owner is an account's number as the disk takes it; nonsense is nobody's.
func owner(id int) int {
	if id < 0 || int64(id) >= 1<<31 {
		return 65534
	}
	return id
}

// touch sets a time of change that can be one.
func touch(root *os.Root, p string, at time.Time) error {
	if at.Year() < 1970 || at.Year() > 2200 {
		return nil
	}
	return root.Chtimes(p, at, at)
}
