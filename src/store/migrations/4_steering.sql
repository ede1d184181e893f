-- Requests of people to runs that a worker on another host has. `moved_at` is when they were in the run's own inbox.
CREATE TABLE interventions (
  id TEXT PRIMARY KEY,
  run TEXT NOT NULL,
  request TEXT NOT NULL,
  left_at BIGINT NOT NULL,
  moved_at BIGINT
);
CREATE INDEX interventions_waiting ON interventions (run, left_at, id) WHERE moved_at IS NULL;
-- Events of runs, mirrored by their workers. `number` counts within one claim.
CREATE TABLE events (
  run TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  number BIGINT NOT NULL,
  event TEXT NOT NULL,
  PRIMARY KEY (run, epoch, number)
);
