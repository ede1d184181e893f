-- The run that a creation makes, chosen before it exists: after a crash the creation is finished, and not done twice.
ALTER TABLE api_creations ADD COLUMN planned TEXT;
