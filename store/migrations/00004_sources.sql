-- +goose Up
-- What a hint has to prove beside the place of a record: the push that a knot's stream told of.
ALTER TABLE rechecks ADD COLUMN body TEXT NOT NULL DEFAULT '';

-- Events are planned in lanes: one for what a repository does itself, one for each fork that proposes to it.
ALTER TABLE events ADD COLUMN lane TEXT NOT NULL DEFAULT '';
UPDATE events SET lane = repo WHERE state = 'pending';
DROP INDEX events_pending;
CREATE INDEX events_pending ON events (lane, id) WHERE state = 'pending';
CREATE INDEX events_pull ON events (json_extract(body, '$.pull.ticket')) WHERE state = 'pending';
CREATE INDEX workflows_pull ON workflows (pipeline) WHERE status IN ('waiting', 'held');

-- Pull requests. The target never changes, whatever the thread says later.
CREATE TABLE pulls (
  ticket  TEXT PRIMARY KEY, -- at-uri
  repo    TEXT NOT NULL,
  author  TEXT NOT NULL,
  state   TEXT NOT NULL CHECK (state IN ('open', 'closed', 'merged')),
  changes INTEGER NOT NULL -- how often the state changed: part of the trigger keys
) STRICT, WITHOUT ROWID;

CREATE TABLE rounds (
  uri     TEXT PRIMARY KEY,
  ticket  TEXT NOT NULL REFERENCES pulls (ticket),
  place   TEXT NOT NULL, -- orders the rounds of one pull request
  cid     TEXT NOT NULL,
  trigger TEXT NOT NULL, -- JSON
  dropped INTEGER NOT NULL CHECK (dropped IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX rounds_ticket ON rounds (ticket, place);

-- Records of the spindle's owner and admins that put an account on the allow-list.
CREATE TABLE grants (
  author TEXT NOT NULL,
  rkey   TEXT NOT NULL,
  did    TEXT NOT NULL,
  PRIMARY KEY (author, rkey)
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_did ON grants (did);
INSERT INTO grants SELECT '', did, did FROM members WHERE source = 'record';

-- +goose Down
DROP TABLE grants;
DROP TABLE rounds;
DROP TABLE pulls;
DROP INDEX workflows_pull;
DROP INDEX events_pull;
DROP INDEX events_pending;
CREATE INDEX events_pending ON events (repo, id) WHERE state = 'pending';
ALTER TABLE events DROP COLUMN lane;
ALTER TABLE rechecks DROP COLUMN body;
