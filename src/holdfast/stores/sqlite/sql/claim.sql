-- Which jobs a claim or an expiry may have, and the rows of jobs.

-- name: select_lanes
-- The lanes of a queue that have ready jobs, by priority.
SELECT lane.priority, lane.id
FROM lane
WHERE lane.queue = :queue AND lane.executor IS :executor
  AND (lane.region IS NULL OR :region IS NULL OR lane.region = :region)
  AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
  AND EXISTS (SELECT 1 FROM ready WHERE ready.lane = lane.id AND ready.ready_at <= :now)
ORDER BY lane.priority, lane.id

-- name: select_ready
SELECT ready_at, seq
FROM ready
WHERE lane = :lane AND ready_at <= :now
  AND (ready_at, seq) > (:after_ready_at, :after_seq)
  AND (until IS NULL OR until > :now)
  AND (lock IS NULL OR NOT EXISTS (
        SELECT 1 FROM resource WHERE resource.key = ready.lock AND resource.holder IS NOT NULL))
ORDER BY ready_at, seq
LIMIT :limit

-- name: select_claimed
SELECT claim.op_id, job.job_id
FROM claim JOIN json_each(claim.jobs) AS claimed JOIN job ON job.seq = claimed.value
WHERE claim.op_id IN (SELECT value FROM json_each(?1))
ORDER BY claim.id, claimed.key

-- name: select_jobs_by_id
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM job
CROSS JOIN state ON state.seq = job.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
WHERE job.job_id IN (SELECT value FROM json_each(?1))

-- name: select_jobs_by_seq
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM json_each(?1) AS wanted
CROSS JOIN job ON job.seq = wanted.value
CROSS JOIN state ON state.seq = job.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
ORDER BY wanted.key

-- name: select_due_alarms
SELECT id, due_at, jobs FROM alarm WHERE due_at <= ?1 ORDER BY due_at, id

-- name: select_due_times
SELECT seq, due_at FROM state WHERE seq IN (SELECT value FROM json_each(?1)) AND due_at IS NOT NULL

-- name: delete_alarms
DELETE FROM alarm WHERE id IN (SELECT value FROM json_each(?1))

-- name: insert_alarm
INSERT INTO alarm (due_at, jobs) VALUES (?, ?)
