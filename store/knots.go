package store

import "context"

// RepoNamed finds the repository that an owner has at a knot by the name that its records give, or by the key of
// the record. Two with the same name are none: an unsigned event must not be taken for the wrong one.
func (s *Store) RepoNamed(ctx context.Context, knot, owner, name string) (RepoBinding, bool, error) {
	rows, err := s.r.query(ctx, "SELECT did FROM repos WHERE owner = ? AND knot = ? AND gone = 0 AND (name = ? OR rkey = ?) LIMIT 2", owner, knot, name, name)
	dids, err := collect(rows, err, "find a repository by its name", func(scan func(...any) error) (did string, err error) {
		return did, scan(&did)
	})
	if err != nil || len(dids) != 1 {
		return RepoBinding{}, false, err
	}
	return s.Repo(ctx, dids[0])
}

// ForgetCursor drops a cursor, so that the source is read from where its host begins. A cursor never moves back:
// whoever finds that its host counts anew drops it.
func (s *Store) ForgetCursor(ctx context.Context, source, host, protocol string) error {
	return s.write(ctx, "forget the cursor of "+host, func(t *tx) error {
		_, err := t.exec("DELETE FROM cursors WHERE source = ? AND host = ? AND protocol = ?", source, host, protocol)
		return err
	})
}
