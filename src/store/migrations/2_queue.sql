-- The queue. A rebuild does not touch it.
-- `due_at` is when a worker may claim the run: its earliest start while it is queued, the end of the lease while it runs.
CREATE TABLE queue (
  run TEXT PRIMARY KEY,
  project TEXT NOT NULL,
  request TEXT NOT NULL,
  labels TEXT NOT NULL,
  state TEXT NOT NULL,
  priority BIGINT NOT NULL,
  queued_at BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  max_attempts BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  owner TEXT,
  outcome TEXT,
  reason TEXT,
  ended_at BIGINT
);
CREATE INDEX queue_in_order ON queue (priority DESC, queued_at, run) WHERE state IN ('queued', 'running');
-- What each run used on each day, in billionths of a dollar.
CREATE TABLE spending (
  run TEXT NOT NULL,
  day BIGINT NOT NULL,
  project TEXT NOT NULL,
  nanos BIGINT NOT NULL,
  PRIMARY KEY (run, day)
);
CREATE INDEX spending_by_day ON spending (day, project);
