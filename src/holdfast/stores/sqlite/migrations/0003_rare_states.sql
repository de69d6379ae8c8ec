-- Listings by state: of the states that no job is in that simply succeeds.
CREATE INDEX job_rare ON job (state, seq) WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');
DROP INDEX job_dead_lettered;
