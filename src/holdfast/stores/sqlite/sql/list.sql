-- Pages of jobs. Long specs are compared by the caller, which counts the bytes it reads.

-- name: list_jobs
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM state
CROSS JOIN job ON job.seq = state.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
WHERE state.seq > :after AND state.seq <= :until
  AND (:states IS NULL OR state.state IN (SELECT value FROM json_each(:states)))
  AND (:queue IS NULL OR lane.queue = :queue)
  AND (:queues IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:queues) AS mine WHERE lane.queue GLOB mine.value))
  AND (:regions IS NULL OR lane.region IS NULL OR lane.region IN (SELECT value FROM json_each(:regions)))
  AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
  AND (:name IS NULL OR octet_length(job.spec) > 4096 OR instr(job.spec, :name) > 0)
  AND (:owner IS NULL OR (claim.owner = :owner
                           AND state.state IN ('assigned', 'running', 'aggregating')))
  AND (:labels IS NULL OR octet_length(job.spec) > 4096 OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted
        WHERE wanted.value IS NOT (
            SELECT had.value FROM json_each(job.spec, '$.labels') AS had WHERE had.key = wanted.key)))
ORDER BY state.seq

-- name: list_rare_jobs
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM rare
CROSS JOIN state ON state.seq = rare.seq
CROSS JOIN job ON job.seq = state.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
WHERE rare.state = :state AND rare.seq > :after AND rare.seq <= :until
  AND (:queue IS NULL OR lane.queue = :queue)
  AND (:queues IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:queues) AS mine WHERE lane.queue GLOB mine.value))
  AND (:regions IS NULL OR lane.region IS NULL OR lane.region IN (SELECT value FROM json_each(:regions)))
  AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
  AND (:name IS NULL OR octet_length(job.spec) > 4096 OR instr(job.spec, :name) > 0)
  AND (:owner IS NULL OR (claim.owner = :owner
                           AND state.state IN ('assigned', 'running', 'aggregating')))
  AND (:labels IS NULL OR octet_length(job.spec) > 4096 OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted
        WHERE wanted.value IS NOT (
            SELECT had.value FROM json_each(job.spec, '$.labels') AS had WHERE had.key = wanted.key)))
ORDER BY rare.seq

-- name: select_rare_bound
SELECT seq FROM rare
WHERE state = :state AND seq > :after
ORDER BY seq
LIMIT 1 OFFSET :rows

-- name: list_jobs_newest
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM state
CROSS JOIN job ON job.seq = state.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
WHERE state.seq < :after AND state.seq >= :until
  AND (:states IS NULL OR state.state IN (SELECT value FROM json_each(:states)))
  AND (:queue IS NULL OR lane.queue = :queue)
  AND (:queues IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:queues) AS mine WHERE lane.queue GLOB mine.value))
  AND (:regions IS NULL OR lane.region IS NULL OR lane.region IN (SELECT value FROM json_each(:regions)))
  AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
  AND (:name IS NULL OR octet_length(job.spec) > 4096 OR instr(job.spec, :name) > 0)
  AND (:owner IS NULL OR (claim.owner = :owner
                           AND state.state IN ('assigned', 'running', 'aggregating')))
  AND (:labels IS NULL OR octet_length(job.spec) > 4096 OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted
        WHERE wanted.value IS NOT (
            SELECT had.value FROM json_each(job.spec, '$.labels') AS had WHERE had.key = wanted.key)))
ORDER BY state.seq DESC

-- name: list_rare_jobs_newest
SELECT state.seq, job.job_id, job.payload, job.created_at, state.updated_at, state.ready_at,
       state.state, state.attempt, state.version, state.transition_no, state.failures,
       state.crashes, state.fencing_token, state.started_at, state.ended_at, claim.op_id, claim.lease,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, state.detail
FROM rare
CROSS JOIN state ON state.seq = rare.seq
CROSS JOIN job ON job.seq = state.seq
CROSS JOIN lane ON lane.id = job.lane
LEFT JOIN claim ON claim.id = state.claim
WHERE rare.state = :state AND rare.seq < :after AND rare.seq >= :until
  AND (:queue IS NULL OR lane.queue = :queue)
  AND (:queues IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:queues) AS mine WHERE lane.queue GLOB mine.value))
  AND (:regions IS NULL OR lane.region IS NULL OR lane.region IN (SELECT value FROM json_each(:regions)))
  AND (:kinds IS NULL OR lane.kind IN (SELECT value FROM json_each(:kinds)))
  AND (:name IS NULL OR octet_length(job.spec) > 4096 OR instr(job.spec, :name) > 0)
  AND (:owner IS NULL OR (claim.owner = :owner
                           AND state.state IN ('assigned', 'running', 'aggregating')))
  AND (:labels IS NULL OR octet_length(job.spec) > 4096 OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted
        WHERE wanted.value IS NOT (
            SELECT had.value FROM json_each(job.spec, '$.labels') AS had WHERE had.key = wanted.key)))
ORDER BY rare.seq DESC

-- name: select_rare_bound_newest
SELECT seq FROM rare
WHERE state = :state AND seq < :after
ORDER BY seq DESC
LIMIT 1 OFFSET :rows

-- name: select_list_bounds
SELECT (SELECT min(seq) FROM state WHERE seq > :after), (SELECT max(seq) FROM state)

-- name: select_list_bounds_newest
SELECT (SELECT max(seq) FROM state WHERE seq < :after), (SELECT min(seq) FROM state)

-- name: select_any
SELECT 1 FROM queue_count
WHERE jobs > 0
  AND (:queue IS NULL OR queue = :queue)
  AND (:queues IS NULL OR EXISTS (SELECT 1 FROM json_each(:queues) AS mine WHERE queue GLOB mine.value))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
LIMIT 1

-- name: select_ids_from
SELECT job_id FROM job WHERE job_id >= :text AND job_id < :text || char(127) ORDER BY job_id DESC LIMIT :limit

-- name: select_ids_by_end
-- Of the newest ids in a range: only the index of ids is read.
SELECT job_id FROM (
    SELECT job_id FROM job WHERE job_id >= :first AND job_id < :end ORDER BY job_id DESC LIMIT :rows)
WHERE substr(job_id, -length(:text)) = :text
LIMIT :limit
