package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"spindle/engines"
)

// layerTree is an unpacked layer. Guarded by Store.mu, but for meta, which does not change.
type layerTree struct {
	meta  layerMeta
	roots int // that are made of it
	holds int // by images that are being made
}

// root is an image that attempts can run in. Guarded by Store.mu, but for meta's own parts, which do not change
// once it is stored, save for Names and Tops.
type root struct {
	meta  rootMeta
	holds int
	used  time.Time
}

// rootMeta is root.json.
type rootMeta struct {
	// Version is rootVersion; what an older server has made otherwise is made anew.
	Version int      `json:"version"`
	Digest  string   `json:"digest"`
	Tops    []string `json:"tops"`
	Names   []string `json:"names"`
	Layers  []string `json:"layers"`
	// Private says that the image was only asked for with credentials; Public that it was had without.
	Private bool `json:"private"`
	// Bytes is what the root takes beside its layers.
	Bytes   int64    `json:"bytes"`
	Env     []string `json:"env"`
	UID     int      `json:"uid"`
	GID     int      `json:"gid"`
	User    string   `json:"user"`
	Bash    bool     `json:"bash"`
	Git     bool     `json:"git"`
	Chowned bool     `json:"chowned"`
}

// rootVersion changes with what assemble writes.
const rootVersion = 1

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func (s *Store) layerDir(diff string) string { return filepath.Join(s.cfg.Dir, "layers", hexOf(diff)) }
func (s *Store) rootDir(digest string) string {
	return filepath.Join(s.cfg.Dir, "roots", hexOf(digest))
}
func (s *Store) tmp(kind string) (string, error) {
	dir, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "tmp"), kind+"-")
	if err != nil {
		return "", fmt.Errorf("images: make a folder: %w", err)
	}
	return dir, nil
}

// load reads the stored roots and the layers that they are made of, and removes everything else: layers without a root
// may not have reached the disk before a power cut, and their bytes are in Blobs.
func (s *Store) load() error {
	if err := s.clear(filepath.Join(s.cfg.Dir, "tmp"), func(string) bool { return false }); err != nil {
		return err
	}
	metas := map[string]rootMeta{}
	err := s.clear(filepath.Join(s.cfg.Dir, "roots"), func(name string) bool {
		var m rootMeta
		st, err := readJSON(filepath.Join(s.cfg.Dir, "roots", name, "root.json"), &m)
		if err != nil || m.Version != rootVersion || hexOf(m.Digest) != name || m.Chowned != s.root {
			return false
		}
		for _, diff := range m.Layers {
			if _, ok := s.layers[diff]; ok {
				continue
			}
			var l layerMeta
			if _, err := readJSON(filepath.Join(s.layerDir(diff), "layer.json"), &l); err != nil || l.Diff != diff {
				return false
			}
			s.layers[diff] = &layerTree{meta: l}
		}
		metas[m.Digest] = m
		s.roots[m.Digest] = &root{meta: m, used: st.ModTime()}
		return true
	})
	if err != nil {
		return err
	}
	for _, m := range metas {
		s.used += m.Bytes
		s.learn(m.Digest, m.Tops, m.Names)
		for _, diff := range m.Layers {
			s.layers[diff].roots++
		}
	}
	for diff, l := range s.layers {
		if l.roots == 0 {
			delete(s.layers, diff)
			continue
		}
		s.used += l.meta.Bytes
	}
	err = s.clear(filepath.Join(s.cfg.Dir, "layers"), func(name string) bool { return s.layers["sha256:"+name] != nil })
	if err != nil {
		return err
	}
	return s.reserve(0)
}

// clear removes from dir what keep does not want.
func (s *Store) clear(dir string, keep func(name string) bool) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if keep(n.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, n.Name())); err != nil {
			return err
		}
	}
	return nil
}

func readJSON(path string, v any) (fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return st, json.NewDecoder(io.LimitReader(f, 256<<20)).Decode(v)
}

// writeJSON writes a file that is whole and on the disk when it has its name.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// learn remembers what leads to an image. The caller has the lock, or is alone.
func (s *Store) learn(digest string, tops, names []string) {
	s.tops[digest] = digest
	for _, t := range tops {
		s.tops[t] = digest
	}
	for _, n := range names {
		s.names[n] = digest
	}
}

// have finds the image behind the digest of an index or a manifest, if it is here.
func (s *Store) have(top string) (digest string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, ok = s.tops[top]
	return digest, ok
}

// hold gives an image that is here to an attempt, or nil. Who is not trusted gets only what was had without credentials.
func (s *Store) hold(top string, r request) *engines.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdLocked(top, r)
}

func (s *Store) holdLocked(top string, r request) *engines.Image {
	e, ok := s.roots[s.tops[top]]
	if !ok || r.untrusted && e.meta.Private {
		return nil
	}
	e.holds++
	e.used = s.cfg.Clock.Now()
	path := filepath.Join(s.rootDir(e.meta.Digest), "root.json")
	_ = os.Chtimes(path, e.used, e.used) // only the order after a restart depends on it
	released := false
	return &engines.Image{
		Name: r.text, Digest: e.meta.Digest, Root: filepath.Join(s.rootDir(e.meta.Digest), "root"), Env: e.meta.Env,
		UID: e.meta.UID, GID: e.meta.GID, User: e.meta.User, Bash: e.meta.Bash, Git: e.meta.Git,
		Release: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !released {
				released = true
				e.holds--
			}
		},
	}
}

// holdFound holds the image that a registry has just told of, if it is here, and writes down what the answer teaches:
// which tag it was, and whether it takes credentials to see it.
func (s *Store) holdFound(f *found, r request) *engines.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.roots[f.digest]
	if !ok {
		return nil
	}
	old := e.meta
	m := &e.meta
	if !f.private {
		m.Private = false
	}
	name := r.ref.Name()
	m.Tops = added(m.Tops, f.tops...)
	m.Names = added(m.Names, name)
	if s.names[name] != f.digest || old.Private != m.Private || len(old.Tops) != len(m.Tops) || len(old.Names) != len(m.Names) {
		s.learn(f.digest, m.Tops, []string{name})
		if err := writeJSON(filepath.Join(s.rootDir(f.digest), "root.json"), m); err != nil {
			s.cfg.Log.Warn("what was learned of an image could not be written", "image", f.digest, "err", err)
		}
	}
	return s.holdLocked(f.digest, r)
}

// maxNames bounds how many tags and indexes are remembered for an image.
const maxNames = 64

// added is list with what is new in more, at most maxNames of them, the oldest forgotten first.
func added(list []string, more ...string) []string {
	for _, m := range more {
		found := false
		for _, l := range list {
			found = found || l == m
		}
		if !found {
			list = append(list[:len(list):len(list)], m)
		}
	}
	return list[max(0, len(list)-maxNames):]
}

func (s *Store) hasLayer(diff string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layers[diff] != nil
}

// holdLayer keeps a layer for an image that is being made.
func (s *Store) holdLayer(diff string) (layerMeta, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers[diff]
	if !ok {
		return layerMeta{}, false
	}
	l.holds++
	return l.meta, true
}

// dropLayers undoes holdLayer.
func (s *Store) dropLayers(diffs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range diffs {
		s.layers[d].holds--
	}
}

// unpackLayer makes a layer out of its bytes.
func (s *Store) unpackLayer(ctx context.Context, l layer, b *budget, in io.Reader) (err error) {
	if err := slot(ctx, s.unpacks); err != nil {
		return err
	}
	defer func() { <-s.unpacks }()
	dir, err := s.tmp("layer")
	if err != nil {
		return err
	}
	var u *unpacker
	defer func() {
		if err != nil {
			if rerr := os.RemoveAll(dir); rerr != nil {
				s.cfg.Log.Error("what was unpacked of a layer could not be removed", "dir", dir, "err", rerr)
			}
			if u != nil {
				b.refund(u.meta.Bytes)
			}
		}
	}()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return fmt.Errorf("images: make a layer's folder: %w", err)
	}
	at, err := os.OpenRoot(tree)
	if err != nil {
		return fmt.Errorf("images: open a layer's folder: %w", err)
	}
	defer at.Close()
	a, err := newArchive(ctx, in, 2*s.cfg.MaxImage)
	if err != nil {
		return err
	}
	defer a.end()
	u = newUnpacker(at, s.root, b.take)
	if err := u.unpack(a); err != nil {
		return err
	}
	if err := a.finish(l.diff); err != nil {
		return err
	}
	u.meta.Diff = l.diff
	if err := writeJSON(filepath.Join(dir, "layer.json"), u.meta); err != nil {
		return fmt.Errorf("images: describe a layer: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(dir, s.layerDir(l.diff)); err != nil {
		return fmt.Errorf("images: keep a layer: %w", err)
	}
	s.layers[l.diff] = &layerTree{meta: u.meta}
	b.handOver(u.meta.Bytes)
	return nil
}
