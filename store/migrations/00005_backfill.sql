-- +goose Up
-- The accounts and repositories whose records are read as a whole, and how far that is.
CREATE TABLE backfill (
  did        TEXT PRIMARY KEY,
  kind       TEXT NOT NULL CHECK (kind IN ('account', 'repo')),
  state      TEXT NOT NULL CHECK (state IN ('wanted', 'fetching', 'applying', 'done', 'waiting', 'refused')),
  wish       INTEGER NOT NULL, -- grows with every wish; one that comes while the records are read is granted after
  why        TEXT NOT NULL,
  rev        TEXT NOT NULL, -- of the last whole reading
  host       TEXT NOT NULL,
  reason     TEXT NOT NULL,
  tries      INTEGER NOT NULL,
  not_before INTEGER NOT NULL,
  since      INTEGER NOT NULL,
  done_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX backfill_due ON backfill (not_before, did) WHERE state IN ('wanted', 'waiting');
CREATE INDEX backfill_state ON backfill (state);

-- The first start of all: what is older was nobody's to run.
CREATE TABLE beginning (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  at INTEGER NOT NULL
) STRICT;

-- Where each ref is believed to be, by a look at the knot or by pushes that went on from there.
CREATE TABLE refs (
  repo    TEXT NOT NULL,
  ref     TEXT NOT NULL,
  sha     TEXT NOT NULL,
  event   INTEGER NOT NULL, -- the push that took it there; 0 is a look
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (repo, ref)
) STRICT, WITHOUT ROWID;

-- The looks at a repository. The first one starts nothing.
CREATE TABLE sights (
  repo     TEXT PRIMARY KEY,
  mark     INTEGER NOT NULL, -- the last event before the last look
  first_at INTEGER NOT NULL,
  last_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Pushes that a look found; the notice of such a push may still come.
CREATE INDEX events_late ON events (repo, json_extract(body, '$.ref'), json_extract(body, '$.commit'))
  WHERE json_extract(body, '$.late') AND json_extract(body, '$.kind') = 'push';

-- +goose Down
DROP INDEX events_late;
DROP TABLE sights;
DROP TABLE refs;
DROP TABLE beginning;
DROP TABLE backfill;
