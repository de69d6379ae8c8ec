-- Code that knows migration 1 can work with what this one leaves.

-- Listings by state: of the states that no job is in that simply succeeds.
CREATE INDEX job_rare ON holdfast.job (state, seq) WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');
DROP INDEX holdfast.job_dead_lettered;
