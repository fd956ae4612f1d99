package images

import (
	"fmt"
	"os"
	"path/filepath"
)

// reserve takes n bytes of the store, and removes the images that were used longest ago until they fit. It fails with
// ErrFull when all that is left is in use.
func (s *Store) reserve(n int64) error {
	s.mu.Lock()
	var doomed []string
	for s.used+n > s.cfg.MaxBytes {
		dirs := s.evict()
		if dirs == nil {
			break
		}
		doomed = append(doomed, dirs...)
	}
	fits := s.used+n <= s.cfg.MaxBytes
	if fits {
		s.used += n
	}
	used := s.used
	s.mu.Unlock()
	for _, dir := range doomed {
		if err := os.RemoveAll(dir); err != nil {
			s.cfg.Log.Error("an image that was let go could not be removed", "dir", dir, "err", err)
		}
	}
	if !fits {
		return fmt.Errorf("%w: %s of %s", ErrFull, size(used), size(s.cfg.MaxBytes))
	}
	return nil
}

// Collect removes the images that nobody uses until the store has at most keep bytes, the ones used longest ago first,
// and says how many bytes it has given free.
func (s *Store) Collect(keep int64) (freed int64) {
	s.mu.Lock()
	before := s.used
	var doomed []string
	for s.used > keep {
		dirs := s.evict()
		if dirs == nil {
			break
		}
		doomed = append(doomed, dirs...)
	}
	freed = before - s.used
	s.mu.Unlock()
	for _, dir := range doomed {
		if err := os.RemoveAll(dir); err != nil {
			s.cfg.Log.Error("an image that was let go could not be removed", "dir", dir, "err", err)
		}
	}
	return freed
}

// evict takes the root that was used longest ago and that nobody holds out of the store, with the layers that no other
// root is made of. When there is none, it takes a layer that belongs to none. It moves them to where the next start would
// remove them, and returns where; nil when there is nothing to take. The caller has the lock.
func (s *Store) evict() (doomed []string) {
	var oldest *root
	for _, e := range s.roots {
		if e.holds == 0 && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest != nil {
		m := oldest.meta
		if !s.doom(&doomed, s.rootDir(m.Digest)) {
			return nil
		}
		delete(s.roots, m.Digest)
		s.used -= m.Bytes
		for _, known := range []map[string]string{s.tops, s.names} {
			for k, d := range known {
				if d == m.Digest {
					delete(known, k)
				}
			}
		}
		for _, diff := range m.Layers {
			s.layers[diff].roots--
		}
		s.cfg.Log.Info("an image is let go to make room", "image", m.Digest, "names", m.Names)
	}
	for diff, l := range s.layers {
		if l.roots == 0 && l.holds == 0 && s.doom(&doomed, s.layerDir(diff)) {
			delete(s.layers, diff)
			s.used -= l.meta.Bytes
		}
	}
	return doomed
}

// doom moves dir away.
func (s *Store) doom(doomed *[]string, dir string) bool {
	to, err := s.tmp("gone")
	if err == nil {
		err = os.Rename(dir, filepath.Join(to, "it"))
	}
	if err != nil {
		s.cfg.Log.Error("an image could not be moved away", "dir", dir, "err", err)
		return false
	}
	*doomed = append(*doomed, to)
	return true
}
