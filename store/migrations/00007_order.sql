-- +goose Up
-- What orders workflows: the rules of the file, the gate that each stands at, and who waits for whom.
ALTER TABLE workflows ADD COLUMN rules TEXT NOT NULL DEFAULT ''; -- pipeline.Rules as JSON; empty for none
ALTER TABLE workflows ADD COLUMN grp TEXT NOT NULL DEFAULT '';   -- the concurrency group, as in rules
ALTER TABLE workflows ADD COLUMN gate TEXT NOT NULL DEFAULT '' CHECK (gate IN ('', 'trust', 'needs', 'approval', 'group'));
ALTER TABLE workflows ADD COLUMN held_until INTEGER NOT NULL DEFAULT 0;
UPDATE workflows SET gate = 'trust', held_until = created_at + 259200000000 WHERE status = 'held'; -- 72 h
ALTER TABLE attempts ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN code TEXT NOT NULL DEFAULT ''; -- what sort of refusal, for programs

DROP INDEX workflows_waiting;
CREATE INDEX workflows_ready ON workflows (owner, ready_at, created_at) WHERE status = 'waiting' AND gate = '';
DROP INDEX workflows_silent;
CREATE INDEX workflows_silent ON workflows (owner) WHERE status = 'waiting' AND gate = '' AND reason = '';
DROP INDEX workflows_held;
CREATE INDEX workflows_held ON workflows (held_until) WHERE status = 'held';
CREATE INDEX workflows_group ON workflows (repo, grp) WHERE grp <> '' AND status IN ('waiting', 'preparing', 'running');

-- workflow of pipeline waits for the workflow need, which is one of the pipeline source: the same one, or one that it
-- repeats.
CREATE TABLE needs (
  pipeline TEXT NOT NULL,
  workflow TEXT NOT NULL,
  need     TEXT NOT NULL,
  source   TEXT NOT NULL, -- empty: there is none of that name
  PRIMARY KEY (pipeline, workflow, need),
  FOREIGN KEY (pipeline, workflow) REFERENCES workflows (pipeline, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX needs_of ON needs (source, need);

-- What a workflow handed on, as one JSON object of texts.
CREATE TABLE outputs (
  pipeline TEXT NOT NULL,
  workflow TEXT NOT NULL,
  body     TEXT NOT NULL,
  PRIMARY KEY (pipeline, workflow),
  FOREIGN KEY (pipeline, workflow) REFERENCES workflows (pipeline, name)
) STRICT, WITHOUT ROWID;

-- Approvals of single workflows. That of a run as a whole is in approvals.
CREATE TABLE workflow_approvals (
  pipeline TEXT NOT NULL,
  workflow TEXT NOT NULL,
  head     TEXT NOT NULL,
  digest   TEXT NOT NULL, -- of the workflow's file
  approver TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (pipeline, workflow),
  FOREIGN KEY (pipeline, workflow) REFERENCES workflows (pipeline, name)
) STRICT, WITHOUT ROWID;

-- The time tables of default branches. A due time is a row of events with a key of its own, so that it comes once.
CREATE TABLE schedules (
  repo     TEXT NOT NULL,
  workflow TEXT NOT NULL, -- the file's name without its ending
  cron     TEXT NOT NULL,
  zone     TEXT NOT NULL,
  next_at  INTEGER NOT NULL, -- 0: never again
  last_at  INTEGER NOT NULL, -- the due time that was last taken
  PRIMARY KEY (repo, workflow, cron, zone)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at > 0;
-- The commit that the time tables of a repository were read at.
CREATE TABLE timetables (
  repo    TEXT PRIMARY KEY,
  sha     TEXT NOT NULL,
  read_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER workflows_rules BEFORE UPDATE OF rules, grp ON workflows
BEGIN SELECT RAISE(ABORT, 'what a workflow runs never changes'); END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER workflows_rules;
DROP TABLE timetables;
DROP TABLE schedules;
DROP TABLE workflow_approvals;
DROP TABLE outputs;
DROP TABLE needs;
DROP INDEX workflows_group;
DROP INDEX workflows_held;
DROP INDEX workflows_silent;
DROP INDEX workflows_ready;
ALTER TABLE events DROP COLUMN code;
ALTER TABLE attempts DROP COLUMN reason;
ALTER TABLE workflows DROP COLUMN held_until;
ALTER TABLE workflows DROP COLUMN gate;
ALTER TABLE workflows DROP COLUMN grp;
ALTER TABLE workflows DROP COLUMN rules;
CREATE INDEX workflows_waiting ON workflows (owner, ready_at, created_at) WHERE status = 'waiting';
CREATE INDEX workflows_silent ON workflows (owner) WHERE status = 'waiting' AND reason = '';
CREATE INDEX workflows_held ON workflows (created_at) WHERE status = 'held';
