-- The index of runs. Everything in it can be read again from run directories and state refs.
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  host TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT,
  title TEXT NOT NULL,
  repository TEXT NOT NULL,
  branch TEXT NOT NULL,
  project TEXT,
  iterations BIGINT NOT NULL,
  checkboxes BIGINT NOT NULL,
  ticked BIGINT NOT NULL,
  tokens BIGINT NOT NULL,
  cost_nanos BIGINT NOT NULL,
  unpriced_calls BIGINT NOT NULL,
  worked_ms BIGINT NOT NULL,
  pull_request TEXT
);
CREATE INDEX runs_by_creation ON runs (created_at, id);
