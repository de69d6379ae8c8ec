-- Counts, leases and locks.

-- name: select_counts
SELECT state, sum(jobs) FROM queue_count WHERE ?1 IS NULL OR queue = ?1 GROUP BY state HAVING sum(jobs) > 0

-- name: select_census
SELECT queue, state, jobs FROM queue_count WHERE jobs > 0 ORDER BY queue

-- name: select_first_ready
WITH busy AS (
    SELECT queue FROM queue_count WHERE state = 'queued' AND jobs > 0 ORDER BY jobs DESC, queue LIMIT ?1
), first AS (
    SELECT busy.queue, (SELECT min(ready_at) FROM ready WHERE ready.lane = lane.id) AS ready_at
    FROM busy CROSS JOIN lane ON lane.queue = busy.queue
)
SELECT queue, min(ready_at) FROM first WHERE ready_at IS NOT NULL GROUP BY queue

-- name: count_ready
SELECT count(*) FROM (
    SELECT 1
    FROM lane CROSS JOIN ready ON ready.lane = lane.id
    WHERE lane.queue = :queue AND ready.ready_at <= :now
    LIMIT :limit)

-- name: count_ahead
-- Two parts, so that each reads only what it counts.
SELECT count(*) FROM (
    SELECT 1
    FROM lane CROSS JOIN ready ON ready.lane = lane.id
    WHERE lane.queue = :queue AND lane.priority < :priority AND ready.ready_at <= :now
    UNION ALL
    SELECT 1
    FROM lane CROSS JOIN ready ON ready.lane = lane.id
    WHERE lane.queue = :queue AND lane.priority = :priority
      AND (ready.ready_at, ready.seq) < (:ready_at, (SELECT seq FROM job WHERE job_id = :job_id))
    LIMIT :limit)

-- name: count_delayed
SELECT count(*) FROM (
    SELECT 1
    FROM lane CROSS JOIN ready ON ready.lane = lane.id
    WHERE lane.queue = :queue AND ready.ready_at > :now
    LIMIT :limit)

-- name: select_owners
-- Among the jobs of the alarms that go off next.
WITH next AS (SELECT jobs FROM alarm ORDER BY due_at LIMIT ?1),
     listed AS (SELECT DISTINCT item.value AS seq FROM next, json_each(next.jobs) AS item LIMIT ?1)
SELECT count(DISTINCT CASE WHEN state.state IN ('assigned', 'running', 'aggregating') THEN claim.owner END),
       count(CASE WHEN state.state IN ('assigned', 'running', 'aggregating') THEN state.detail ->> '$.lease.suspected' END),
       min(state.due_at)
FROM listed CROSS JOIN state ON state.seq = listed.seq LEFT JOIN claim ON claim.id = state.claim
WHERE state.due_at IS NOT NULL

-- name: select_resources
SELECT key, token, holder FROM resource WHERE key IN (SELECT value FROM json_each(?1))
