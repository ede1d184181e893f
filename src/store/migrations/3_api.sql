-- Access to the API: tokens, login sessions and one-time login links, as hashes only. A rebuild does not touch it.
CREATE TABLE api_secrets (
  hash TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX api_tokens_by_name ON api_secrets (name) WHERE kind = 'token';
-- Creations of runs with an idempotency key. `run` is missing until the run exists.
CREATE TABLE api_creations (
  caller TEXT NOT NULL,
  creation_key TEXT NOT NULL,
  request TEXT NOT NULL,
  run TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (caller, creation_key)
);
