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
