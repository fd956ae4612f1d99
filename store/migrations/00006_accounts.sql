-- +goose Up
-- What the host of an account says of it; an account that has no row was never asked about and counts as active.
CREATE TABLE accounts (
  did        TEXT PRIMARY KEY,
  status     TEXT NOT NULL CHECK (status IN ('active', 'takendown', 'suspended', 'deactivated', 'deleted', 'unavailable')),
  checked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Why a repository is no longer served, as a sentence for people; empty for one that chose another spindle.
ALTER TABLE repos ADD COLUMN gone_reason TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE repos DROP COLUMN gone_reason;
DROP TABLE accounts;
