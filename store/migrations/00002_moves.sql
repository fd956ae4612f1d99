-- +goose Up
-- The last move of a ref: a push that repeats an older one is told from a notice that came twice by it.
CREATE INDEX events_moves ON events (repo, json_extract(body, '$.ref'), id)
  WHERE json_extract(body, '$.kind') = 'push' AND json_extract(body, '$.retryOf') IS NULL;

-- +goose Down
DROP INDEX events_moves;
