-- +goose Up
-- Times are microseconds UTC; 0 is "not yet". DIDs are compared byte for byte.

CREATE TABLE state (
  id             INTEGER PRIMARY KEY CHECK (id = 1),
  policy_version INTEGER NOT NULL,
  turn           INTEGER NOT NULL, -- grows with every lease; orders the owners' turns
  clean          INTEGER NOT NULL CHECK (clean IN (0, 1)),
  pinged_at      INTEGER NOT NULL
) STRICT;
INSERT INTO state VALUES (1, 1, 0, 1, 0);

CREATE TABLE cursors (
  source     TEXT NOT NULL,
  host       TEXT NOT NULL,
  protocol   TEXT NOT NULL,
  value      INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (source, host, protocol)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
  did        TEXT NOT NULL,
  collection TEXT NOT NULL,
  rkey       TEXT NOT NULL,
  rev        TEXT NOT NULL,
  cid        TEXT NOT NULL,
  cbor       BLOB,
  deleted    INTEGER NOT NULL CHECK (deleted IN (0, 1)),
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (did, collection, rkey)
) STRICT;

CREATE TABLE rechecks (
  did        TEXT NOT NULL,
  collection TEXT NOT NULL,
  rkey       TEXT NOT NULL,
  generation INTEGER NOT NULL,
  tries      INTEGER NOT NULL,
  not_before INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  PRIMARY KEY (did, collection, rkey)
) STRICT;
CREATE INDEX rechecks_due ON rechecks (not_before);

CREATE TABLE repos (
  did             TEXT PRIMARY KEY,
  owner           TEXT NOT NULL,
  owner_epoch     INTEGER NOT NULL CHECK (owner_epoch >= 1),
  rkey            TEXT NOT NULL,
  name            TEXT NOT NULL,
  knot            TEXT NOT NULL,
  default_branch  TEXT NOT NULL,
  spindle         TEXT NOT NULL,
  manifest_cid    TEXT NOT NULL,
  declaration_cid TEXT NOT NULL,
  generation      TEXT NOT NULL,
  verified_at     INTEGER NOT NULL,
  gone            INTEGER NOT NULL CHECK (gone IN (0, 1))
) STRICT;
CREATE INDEX repos_owner ON repos (owner);

CREATE TABLE collaborators (
  repo TEXT NOT NULL,
  did  TEXT NOT NULL,
  PRIMARY KEY (repo, did)
) STRICT, WITHOUT ROWID;

-- A role may rest on several sources; it is held while one of them stands.
CREATE TABLE members (
  did    TEXT NOT NULL,
  role   TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'banned')),
  source TEXT NOT NULL CHECK (source IN ('config', 'record', 'command')),
  by     TEXT NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (did, role, source)
) STRICT, WITHOUT ROWID;

CREATE TABLE casbin_rule (
  ptype TEXT NOT NULL CHECK (ptype = 'g'),
  v0    TEXT NOT NULL, -- DID
  v1    TEXT NOT NULL, -- role
  v2    TEXT NOT NULL, -- domain
  PRIMARY KEY (v2, v1, v0)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  key         TEXT NOT NULL UNIQUE,
  meaning     BLOB NOT NULL, -- SHA-256 of what the trigger means, without when it was told
  repo        TEXT NOT NULL,
  body        TEXT NOT NULL, -- the trigger as JSON
  sum         BLOB NOT NULL, -- SHA-256 of body
  state       TEXT NOT NULL CHECK (state IN ('pending', 'done', 'skipped', 'nomatch', 'refused', 'gone')),
  reason      TEXT NOT NULL,
  tries       INTEGER NOT NULL,
  not_before  INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  settled_at  INTEGER NOT NULL,
  pipeline    TEXT NOT NULL
) STRICT;
CREATE INDEX events_pending ON events (repo, id) WHERE state = 'pending';

CREATE TABLE pipelines (
  id             TEXT PRIMARY KEY CHECK (id <> ''),
  event          INTEGER NOT NULL UNIQUE REFERENCES events (id),
  repo           TEXT NOT NULL,
  owner          TEXT NOT NULL,
  kind           TEXT NOT NULL CHECK (kind IN ('push', 'pull_request', 'manual', 'schedule')),
  ref            TEXT NOT NULL,
  sha            TEXT NOT NULL,
  body           TEXT NOT NULL, -- the trigger as JSON
  trust          INTEGER NOT NULL CHECK (trust BETWEEN 0 AND 3),
  repo_name      TEXT NOT NULL,
  knot           TEXT NOT NULL,
  default_branch TEXT NOT NULL,
  title          TEXT NOT NULL,
  status         TEXT NOT NULL CHECK (status IN ('waiting', 'held', 'preparing', 'running', 'passed', 'failed', 'error', 'timeout',
                   'cancelled', 'superseded', 'skipped', 'invalid', 'refused', 'expired')),
  note           TEXT NOT NULL,
  approved_by    TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  finished_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX pipelines_repo ON pipelines (repo, id);
CREATE INDEX pipelines_sha ON pipelines (sha);
CREATE INDEX pipelines_open ON pipelines (repo, ref) WHERE status IN ('waiting', 'held');
CREATE INDEX pipelines_status ON pipelines (status, id);

CREATE TABLE workflows (
  pipeline    TEXT NOT NULL REFERENCES pipelines (id),
  name        TEXT NOT NULL CHECK (name <> ''),
  position    INTEGER NOT NULL,
  repo        TEXT NOT NULL,
  owner       TEXT NOT NULL,
  file        TEXT NOT NULL,
  spec        BLOB NOT NULL,
  spec_sum    BLOB NOT NULL, -- SHA-256 of spec
  digest      TEXT NOT NULL,
  engine      TEXT NOT NULL,
  labels      TEXT NOT NULL, -- JSON array
  status      TEXT NOT NULL CHECK (status IN ('waiting', 'held', 'preparing', 'running', 'passed', 'failed', 'error', 'timeout',
                'cancelled', 'superseded', 'skipped', 'invalid', 'refused', 'expired')),
  reason      TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  holder      TEXT NOT NULL,
  released    INTEGER NOT NULL CHECK (released IN (0, 1)), -- this attempt was handed secrets or a token
  lease_until INTEGER NOT NULL,
  cancel_by   TEXT NOT NULL,
  exit_code   INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  ready_at    INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (pipeline, name)
) STRICT;
CREATE INDEX workflows_waiting ON workflows (owner, ready_at, created_at) WHERE status = 'waiting';
CREATE INDEX workflows_silent ON workflows (owner) WHERE status = 'waiting' AND reason = '';
CREATE INDEX workflows_held ON workflows (created_at) WHERE status = 'held';
CREATE INDEX workflows_active ON workflows (owner) WHERE status IN ('preparing', 'running');
CREATE INDEX workflows_finished ON workflows (finished_at) WHERE finished_at > 0;

CREATE TABLE attempts (
  pipeline   TEXT NOT NULL,
  workflow   TEXT NOT NULL,
  attempt    INTEGER NOT NULL,
  epoch      INTEGER NOT NULL,
  holder     TEXT NOT NULL,
  released   INTEGER NOT NULL CHECK (released IN (0, 1)),
  started_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  outcome    TEXT NOT NULL,
  exit_code  INTEGER NOT NULL,
  PRIMARY KEY (pipeline, workflow, attempt),
  FOREIGN KEY (pipeline, workflow) REFERENCES workflows (pipeline, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE steps (
  pipeline    TEXT NOT NULL,
  workflow    TEXT NOT NULL,
  attempt     INTEGER NOT NULL,
  idx         INTEGER NOT NULL CHECK (idx >= 0),
  name        TEXT NOT NULL,
  command     TEXT NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('system', 'user')),
  status      TEXT NOT NULL CHECK (status IN ('waiting', 'held', 'preparing', 'running', 'passed', 'failed', 'error', 'timeout',
                'cancelled', 'superseded', 'skipped', 'invalid', 'refused', 'expired')),
  exit_code   INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (pipeline, workflow, attempt, idx),
  FOREIGN KEY (pipeline, workflow, attempt) REFERENCES attempts (pipeline, workflow, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
  owner TEXT PRIMARY KEY,
  turn  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE changes (
  number    INTEGER PRIMARY KEY AUTOINCREMENT,
  pipeline  TEXT NOT NULL,
  repo      TEXT NOT NULL,
  workflow  TEXT NOT NULL,
  step      INTEGER NOT NULL,
  status    TEXT NOT NULL,
  reason    TEXT NOT NULL,
  exit_code INTEGER NOT NULL,
  at        INTEGER NOT NULL
) STRICT;

-- An approval lets exactly this run start: this head commit with this set of workflow definitions.
CREATE TABLE approvals (
  pipeline    TEXT PRIMARY KEY REFERENCES pipelines (id),
  repo        TEXT NOT NULL,
  source_repo TEXT NOT NULL,
  head        TEXT NOT NULL,
  digest      TEXT NOT NULL,
  approver    TEXT NOT NULL,
  at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE secrets (
  repo        TEXT NOT NULL,
  owner_epoch INTEGER NOT NULL,
  name        TEXT NOT NULL,
  owner       TEXT NOT NULL,
  version     INTEGER NOT NULL,
  key_id      TEXT NOT NULL,
  nonce       BLOB NOT NULL,
  box         BLOB NOT NULL,
  created_at  INTEGER NOT NULL,
  created_by  TEXT NOT NULL,
  PRIMARY KEY (repo, owner_epoch, name)
) STRICT;

CREATE TABLE tokens (
  iss     TEXT NOT NULL,
  jti     TEXT NOT NULL,
  expires INTEGER NOT NULL,
  PRIMARY KEY (iss, jti)
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_expires ON tokens (expires);

CREATE TABLE audit (
  seq    INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  detail TEXT NOT NULL,
  hash   BLOB NOT NULL CHECK (length(hash) = 32) -- over the hash before and this row
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER cursors_grow BEFORE UPDATE ON cursors WHEN NEW.value < OLD.value
BEGIN SELECT RAISE(ABORT, 'a cursor never moves back'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER workflows_terminal BEFORE UPDATE ON workflows
WHEN OLD.status NOT IN ('waiting', 'held', 'preparing', 'running')
BEGIN SELECT RAISE(ABORT, 'an ended workflow never changes'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER workflows_spec BEFORE UPDATE OF spec, spec_sum, digest, file, repo, owner ON workflows
BEGIN SELECT RAISE(ABORT, 'what a workflow runs never changes'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER workflows_epoch BEFORE UPDATE ON workflows WHEN NEW.epoch < OLD.epoch OR NEW.attempt < OLD.attempt
BEGIN SELECT RAISE(ABORT, 'an epoch only grows'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER workflows_kept BEFORE DELETE ON workflows
BEGIN SELECT RAISE(ABORT, 'workflows are not deleted'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER pipelines_trust BEFORE UPDATE ON pipelines
WHEN NEW.trust <> OLD.trust AND NOT (OLD.trust = 0 AND NEW.trust = 1 AND NEW.approved_by <> '')
BEGIN SELECT RAISE(ABORT, 'trust never changes but by an approval'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_settled BEFORE UPDATE ON events WHEN OLD.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'a settled event never changes'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END;
-- +goose StatementEnd

-- +goose Down
-- The first schema has nothing before it; going down is restoring a backup.
SELECT 1;
