-- Statements that read jobs, locks, counts, keys and workers; those that write keys and workers.

-- name: get_jobs
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM holdfast.record
WHERE job_id = ANY($1::text[])

-- name: select_jobs
SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       found.*
FROM (SELECT) AS always LEFT JOIN (
    SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no, state.failures,
           state.crashes, state.fencing_token, state.ready_at, job.created_at, state.updated_at, state.ended_at,
           job.spec::text, job.origin::text, coalesce(state.detail, segment.detail)::text, state.xmin
    FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
    LEFT JOIN holdfast.segment
      ON segment.commit = CASE WHEN state.detail IS NULL THEN state.log[cardinality(state.log)] END
     AND segment.place = 0
    WHERE job.job_id = ANY($1::text[])) AS found ON true

-- name: lock_jobs
SELECT now, floor, seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, origin, detail, NULL::xid
FROM holdfast.lock_jobs_4($1::text[])

-- name: select_resources
SELECT key, token, holder FROM holdfast.resource WHERE key = ANY($1::text[])

-- name: lock_resources
SELECT key, token, holder FROM holdfast.resource WHERE key = ANY($1::text[]) ORDER BY key FOR NO KEY UPDATE

-- name: lock_available_resources
WITH had AS MATERIALIZED (
    SELECT key, token, holder FROM holdfast.resource WHERE key = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT key, token, holder FROM had
UNION ALL
SELECT key, token, coalesce(holder, '?') FROM holdfast.resource
WHERE key = ANY($1::text[]) AND key NOT IN (SELECT key FROM had)

-- name: select_counts
SELECT state, sum(jobs)::bigint FROM holdfast.queue_count
WHERE $1::text IS NULL OR queue = $1
GROUP BY state HAVING sum(jobs) > 0

-- name: select_census
SELECT queue, state, sum(jobs)::bigint FROM holdfast.queue_count
GROUP BY queue, state HAVING sum(jobs) > 0

-- name: select_first_ready
SELECT busy.queue, min(first.ready_at)
FROM (SELECT queue FROM holdfast.queue_count WHERE state = 'queued'
      GROUP BY queue HAVING sum(jobs) > 0 ORDER BY sum(jobs) DESC, queue LIMIT $1) AS busy
JOIN holdfast.lane ON lane.queue = busy.queue
CROSS JOIN LATERAL (VALUES (lane.id), (-lane.id)) AS part(lane)
CROSS JOIN LATERAL (
    SELECT ready_at FROM holdfast.ready WHERE ready.lane = part.lane ORDER BY ready_at LIMIT 1) AS first
GROUP BY busy.queue

-- name: count_ready
SELECT count(*) FROM (
    SELECT FROM holdfast.lane
    CROSS JOIN LATERAL (VALUES (lane.id), (-lane.id)) AS part(lane)
    JOIN holdfast.ready ON ready.lane = part.lane
    WHERE lane.queue = $1 AND ready.ready_at <= coalesce($2::timestamptz, statement_timestamp())
    LIMIT $3) AS found

-- name: count_ahead
-- Two parts, so that each reads only what it counts.
SELECT count(*) FROM (
    SELECT FROM holdfast.lane
    CROSS JOIN LATERAL (VALUES (lane.id), (-lane.id)) AS part(lane)
    JOIN holdfast.ready ON ready.lane = part.lane
    WHERE lane.queue = $1 AND lane.priority < $4
      AND ready.ready_at <= coalesce($2::timestamptz, statement_timestamp())
    UNION ALL
    SELECT FROM holdfast.lane
    CROSS JOIN LATERAL (VALUES (lane.id), (-lane.id)) AS part(lane)
    JOIN holdfast.ready ON ready.lane = part.lane
    WHERE lane.queue = $1 AND lane.priority = $4
      AND (ready.ready_at, ready.seq) < ($5::timestamptz, (SELECT seq FROM holdfast.job WHERE job_id = $6))
    LIMIT $3) AS found

-- name: count_delayed
SELECT count(*) FROM (
    SELECT FROM holdfast.lane
    CROSS JOIN LATERAL (VALUES (lane.id), (-lane.id)) AS part(lane)
    JOIN holdfast.ready ON ready.lane = part.lane
    WHERE lane.queue = $1 AND ready.ready_at > coalesce($2::timestamptz, statement_timestamp())
    LIMIT $3) AS found

-- name: select_owners
SELECT count(DISTINCT owner),
       count(CASE WHEN owner IS NOT NULL THEN detail -> 'lease' ->> 'suspected' END),
       min(due_at)
FROM (
    SELECT record.owner, record.due_at, record.detail
    FROM (SELECT DISTINCT job FROM (
              SELECT alarm.jobs FROM holdfast.alarm ORDER BY alarm.due_at, alarm.id LIMIT $1) AS next
          CROSS JOIN unnest(next.jobs) AS job LIMIT 4 * $1) AS timed
    JOIN holdfast.record ON record.seq = timed.job
    WHERE record.due_at IS NOT NULL
    ORDER BY record.due_at, record.seq LIMIT $1) AS next

-- name: select_api_keys
SELECT key_id, record::text FROM holdfast.api_key ORDER BY created_at, key_id

-- name: put_api_key
INSERT INTO holdfast.api_key (key_id, created_at, record) VALUES ($1, $2, $3::text::json)
ON CONFLICT (key_id) DO UPDATE SET created_at = excluded.created_at, record = excluded.record

-- name: select_workers
SELECT name, record::text FROM holdfast.worker ORDER BY seen_at DESC, name COLLATE "C", instance COLLATE "C"

-- name: put_worker
WITH forgotten AS (DELETE FROM holdfast.worker WHERE seen_at < $5 AND (name, instance) <> ($1, $2))
INSERT INTO holdfast.worker (name, instance, seen_at, record) VALUES ($1, $2, $3, $4::text::json)
ON CONFLICT (name, instance) DO UPDATE SET seen_at = excluded.seen_at, record = excluded.record
