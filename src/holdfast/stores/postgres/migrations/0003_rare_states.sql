-- Code that knows migration 1 can work with what this one leaves.

-- At once: a claim that is under way would wait for the index, and the DROP for the claim.
LOCK TABLE holdfast.job IN ACCESS EXCLUSIVE MODE;

-- Listings by state: of the states that no job is in that simply succeeds.
CREATE INDEX job_rare ON holdfast.job (state, seq) WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');
DROP INDEX holdfast.job_dead_lettered;
