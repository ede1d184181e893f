-- The service that finishes a creation, and until when no other one may.
ALTER TABLE api_creations ADD COLUMN owner TEXT;
ALTER TABLE api_creations ADD COLUMN due_at BIGINT NOT NULL DEFAULT 0;
