-- A secret with a run is for looking at that run alone.
ALTER TABLE api_secrets ADD COLUMN run TEXT;
