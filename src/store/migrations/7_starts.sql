-- How often the run could not start without that being counted as an attempt.
ALTER TABLE queue ADD COLUMN failed_starts BIGINT NOT NULL DEFAULT 0;
