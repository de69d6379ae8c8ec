-- Statements that remove whole ended jobs, and old output.

-- name: select_prunable
SELECT state.seq, job.queue, state.state, job.job_id, state.fencing_token, state.log
FROM holdfast.state JOIN holdfast.job ON job.seq = state.seq
WHERE state.ended_at < $1
ORDER BY state.seq
LIMIT $2
FOR UPDATE OF state SKIP LOCKED

-- name: count_prunable
SELECT (SELECT count(*) FROM holdfast.state WHERE ended_at < $1),
       (SELECT count(*) FROM holdfast.event
        WHERE sequence IS NOT NULL AND received_at < $2
          AND NOT EXISTS (SELECT FROM holdfast.state WHERE state.seq = event.job AND state.ended_at < $1))

-- name: delete_jobs
WITH states AS (DELETE FROM holdfast.state WHERE seq = ANY($1::bigint[])),
     rare AS (DELETE FROM holdfast.rare USING unnest($1::bigint[], $2::text[]) AS old(seq, state)
              WHERE rare.state = old.state AND rare.seq = old.seq)
DELETE FROM holdfast.job WHERE seq = ANY($1::bigint[])

-- name: lock_segments
SELECT commit, place, events::text FROM holdfast.segment WHERE commit = ANY($1::bigint[])
ORDER BY commit, place
FOR UPDATE

-- name: delete_segments
DELETE FROM holdfast.segment USING unnest($1::bigint[], $2::integer[]) AS old(commit, place)
WHERE segment.commit = old.commit AND segment.place = old.place

-- name: cut_segments
UPDATE holdfast.segment SET events = new.events::json
FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS new(commit, place, events)
WHERE segment.commit = new.commit AND segment.place = new.place

-- name: select_old_claims
SELECT DISTINCT op_id FROM holdfast.event WHERE job = ANY($1::bigint[]) AND event_type = 'job_claimed'

-- name: delete_claims
DELETE FROM holdfast.claim
WHERE op_id = ANY($1::text[]) AND NOT EXISTS (SELECT FROM holdfast.job WHERE job.seq = ANY(claim.jobs))

-- name: delete_events
WITH gone AS (DELETE FROM holdfast.event WHERE job = ANY($1::bigint[]) RETURNING 1)
SELECT count(*) FROM gone

-- name: delete_facts
WITH gone AS (DELETE FROM holdfast.fact WHERE about = ANY($1::text[]) RETURNING 1)
SELECT count(*) FROM gone

-- name: delete_output
WITH old AS (
    SELECT job, fencing_token, sequence FROM holdfast.event
    WHERE sequence IS NOT NULL AND received_at < $1
    LIMIT $2),
gone AS (
    DELETE FROM holdfast.event USING old
    WHERE event.job = old.job AND event.fencing_token = old.fencing_token
      AND event.sequence = old.sequence AND event.sequence IS NOT NULL
    RETURNING 1)
SELECT count(*) FROM gone

-- name: add_counts
INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT queue, state, jobs FROM unnest($1::text[], $2::text[], $3::bigint[]) AS new(queue, state, jobs)
