-- +goose Up
-- A stretch of a record stream that was not told. It stands until what was missed has been made up for.
CREATE TABLE gaps (
  source     TEXT NOT NULL,
  host       TEXT NOT NULL,
  protocol   TEXT NOT NULL,
  reason     TEXT NOT NULL,
  generation INTEGER NOT NULL,
  from_value INTEGER NOT NULL, -- in the protocol's own numbers; 0 is unknown
  to_value   INTEGER NOT NULL,
  opened_at  INTEGER NOT NULL,
  PRIMARY KEY (source, host, protocol, reason)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE gaps;
