-- +goose Up
-- A push that was told before the one that it goes on from, and waits for that to count for the place of its ref.
ALTER TABLE events ADD COLUMN early INTEGER NOT NULL DEFAULT 0;
CREATE INDEX events_early ON events (repo) WHERE early;

-- +goose Down
DROP INDEX events_early;
ALTER TABLE events DROP COLUMN early;
