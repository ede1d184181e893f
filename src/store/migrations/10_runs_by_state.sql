-- Lists of runs in one state.
CREATE INDEX runs_by_state ON runs (state, created_at, id);
