-- How much of the file that a host has for a run is in `events`, in bytes.
CREATE TABLE event_files (
  run TEXT NOT NULL,
  file TEXT NOT NULL,
  mirrored BIGINT NOT NULL,
  PRIMARY KEY (run, file)
);
-- The epoch of the worker that moved a request last.
ALTER TABLE interventions ADD COLUMN moved_epoch BIGINT;
UPDATE interventions SET moved_epoch = 0 WHERE moved_at IS NOT NULL;
DROP INDEX interventions_waiting;
CREATE INDEX interventions_of_run ON interventions (run, left_at, id);
