package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// assemble lays the layers of f over another and makes the result an image that attempts can run in. Files are hard
// links to those of the layers, which nobody ever writes to.
func (s *Store) assemble(ctx context.Context, r request, f *found, b *budget) (err error) {
	dir, err := s.tmp("root")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if rerr := os.RemoveAll(dir); rerr != nil {
				s.cfg.Log.Error("what was made of an image could not be removed", "dir", dir, "err", rerr)
			}
		}
	}()
	to := filepath.Join(dir, "root")
	if err := os.Mkdir(to, 0o755); err != nil {
		return fmt.Errorf("images: make an image's folder: %w", err)
	}
	m := merger{to: to, take: b.take, chown: s.root, times: map[string]time.Time{}}
	var diffs []string
	seen := map[string]bool{}
	left := 0
	for _, l := range f.layers {
		s.mu.Lock()
		meta := s.layers[l.diff].meta // held by the caller
		s.mu.Unlock()
		if err := m.layer(ctx, filepath.Join(s.layerDir(l.diff), "tree"), meta); err != nil {
			return fmt.Errorf("images: lay layers over another: %w", err)
		}
		left += meta.Left
		if !seen[l.diff] {
			seen[l.diff] = true
			diffs = append(diffs, l.diff)
		}
	}
	if err := m.finish(); err != nil {
		return fmt.Errorf("images: lay layers over another: %w", err)
	}
	if left > 0 {
		r.say("%d entries of image %s that are no files, folders or links were left out", left, r.text)
	}
	meta, err := s.dress(r, f, to)
	if err != nil {
		return err
	}
	meta.Layers, meta.Bytes = diffs, m.bytes
	if err := syncAll(to); err != nil {
		return fmt.Errorf("images: bring an image to the disk: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, "root.json"), meta); err != nil {
		return fmt.Errorf("images: describe an image: %w", err)
	}
	return s.keep(dir, meta, b)
}

// keep makes an assembled root exist.
func (s *Store) keep(dir string, meta rootMeta, b *budget) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(dir, s.rootDir(meta.Digest)); err != nil {
		return fmt.Errorf("images: keep an image: %w", err)
	}
	for _, d := range meta.Layers {
		s.layers[d].roots++
	}
	s.roots[meta.Digest] = &root{meta: meta, used: s.cfg.Clock.Now()}
	s.learn(meta.Digest, meta.Tops, meta.Names)
	b.handOver(meta.Bytes)
	return nil
}

// syncAll brings everything below dir to the disk. The layers lie on the same file system (syncfs(2)).
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// merger lays layers over another in a folder. It reads trees that an unpacker made, and never goes through a symbolic
// link: every folder on the way to a path is one that it made itself.
type merger struct {
	to    string
	take  func(entries, bytes int64) error
	chown bool
	bytes int64
	times map[string]time.Time // of folders, set at the end
}

func (m *merger) layer(ctx context.Context, from string, meta layerMeta) error {
	for _, p := range meta.Opaque {
		if err := m.empty(p); err != nil {
			return err
		}
	}
	for _, p := range meta.Whiteouts {
		if at, ok := m.real(p); ok {
			if err := m.remove(at); err != nil {
				return err
			}
		}
	}
	implicit := map[string]bool{}
	for _, p := range meta.Implicit {
		implicit[p] = true
	}
	return filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		to := filepath.Join(m.to, rel)
		if d.IsDir() {
			return m.dir(at, to, implicit[rel])
		}
		if err := os.Link(at, to); !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := m.remove(to); err != nil {
			return err
		}
		return os.Link(at, to)
	})
}

// real is where p is below m.to, if the folders on the way are folders.
func (m *merger) real(p string) (string, bool) {
	at := m.to
	parts := strings.Split(p, "/")
	for i, part := range parts {
		at = filepath.Join(at, part)
		st, err := os.Lstat(at)
		if err != nil || i < len(parts)-1 && !st.IsDir() {
			return "", false
		}
	}
	return at, true
}

// empty removes what lower layers have in the folder p.
func (m *merger) empty(p string) error {
	at, ok := m.real(p)
	if !ok {
		return nil
	}
	if st, err := os.Lstat(at); err != nil || !st.IsDir() { // a link that a lower layer has there is not followed
		return err
	}
	names, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := m.remove(filepath.Join(at, n.Name())); err != nil {
			return err
		}
	}
	return nil
}

// remove takes away what lower layers have at a path.
func (m *merger) remove(at string) error {
	if st, err := os.Lstat(at); err == nil && !st.IsDir() {
		return os.Remove(at)
	}
	return os.RemoveAll(at)
}

// dir makes the folder at to like the one at from. One that the layer only needed on the way keeps what it is.
func (m *merger) dir(from, to string, implicit bool) error {
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	have, err := os.Lstat(to)
	switch {
	case err == nil && have.IsDir() && implicit:
		return nil
	case err == nil && !have.IsDir():
		if err := os.Remove(to); err != nil {
			return err
		}
		fallthrough
	case errors.Is(err, fs.ErrNotExist):
		if err := m.take(0, diskBlock); err != nil {
			return err
		}
		m.bytes += diskBlock
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && m.chown {
		if err := os.Lchown(to, int(sys.Uid), int(sys.Gid)); err != nil {
			return err
		}
	}
	m.times[to] = st.ModTime()
	return os.Chmod(to, st.Mode().Perm()|st.Mode()&fs.ModeSticky)
}

// finish sets the times of folders. What was a folder once may have become a link by a later layer, which os.Root
// keeps from leading anywhere else.
func (m *merger) finish() error {
	root, err := os.OpenRoot(m.to)
	if err != nil {
		return err
	}
	defer root.Close()
	for p, at := range m.times {
		rel, err := filepath.Rel(m.to, p)
		if err != nil {
			return err
		}
		if st, err := root.Lstat(rel); err != nil || !st.IsDir() {
			continue
		}
		if err := touch(root, rel, at); err != nil {
			return err
		}
	}
	return nil
}
