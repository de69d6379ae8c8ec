-- Which jobs a claim or an expiry may have, and the rows of jobs.

-- name: select_lanes
-- The lanes of a queue that have ready jobs, by priority.
SELECT lane.priority, lane.id, lane.locking
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
ORDER BY ready_at, seq
LIMIT :limit

-- name: select_unlocked
-- Among so many rows (-1 for all) those whose lock is free.
SELECT ready_at, seq
FROM (SELECT ready_at, seq, until, lock
      FROM ready
      WHERE lane = :lane AND ready_at <= :now
        AND (ready_at, seq) > (:after_ready_at, :after_seq)
      ORDER BY ready_at, seq
      LIMIT :rows)
WHERE (until IS NULL OR until > :now)
  AND NOT EXISTS (SELECT 1 FROM resource WHERE resource.key = lock AND resource.holder IS NOT NULL)
ORDER BY ready_at, seq
LIMIT :limit

-- name: select_row
SELECT ready_at, seq
FROM ready
WHERE lane = :lane AND ready_at <= :now
  AND (ready_at, seq) > (:after_ready_at, :after_seq)
ORDER BY ready_at, seq
LIMIT 1 OFFSET :rows - 1

-- name: select_locks
-- How many locks the jobs of a lane need, each found from the one before on, and those that are free.
WITH RECURSIVE each (n, lock) AS (
    SELECT 1, (SELECT min(lock) FROM ready INDEXED BY ready_lock WHERE lane = :lane AND lock IS NOT NULL)
    UNION ALL
    SELECT n + 1, (SELECT min(ready.lock) FROM ready INDEXED BY ready_lock
                   WHERE ready.lane = :lane AND ready.lock > each.lock AND ready.lock IS NOT NULL)
    FROM each WHERE each.lock IS NOT NULL AND n < :locks)
SELECT count(*),
       json_group_array(lock) FILTER (WHERE NOT EXISTS (
           SELECT 1 FROM resource WHERE resource.key = each.lock AND resource.holder IS NOT NULL))
FROM each WHERE lock IS NOT NULL

-- name: select_heads
-- The first job of each of these locks.
SELECT head.ready_at, head.seq
FROM json_each(:free) AS free
CROSS JOIN ready AS head INDEXED BY ready_lock
  ON head.lane = :lane AND head.lock = free.value AND head.lock IS NOT NULL
 AND (head.ready_at, head.seq) = (
        SELECT ready_at, seq FROM ready INDEXED BY ready_lock
        WHERE lane = :lane AND lock = free.value AND lock IS NOT NULL AND ready_at <= :now
          AND (ready_at, seq) > (:after_ready_at, :after_seq)
          AND (until IS NULL OR until > :now)
        ORDER BY ready_at, seq LIMIT 1)
ORDER BY head.ready_at, head.seq
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
