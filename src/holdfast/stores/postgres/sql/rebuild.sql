-- The records, and all that jobs are found by, made again from the log.

-- name: begin_rebuild
CREATE TEMP TABLE job_commit (job bigint, commit bigint, PRIMARY KEY (job, commit)) ON COMMIT DROP;
CREATE TEMP TABLE job_claim (op_id text, place bigint, job bigint) ON COMMIT DROP;
CREATE TEMP TABLE old_ready ON COMMIT DROP AS
SELECT abs(lane) AS lane, ready_at, seq, until, lock FROM holdfast.ready;
CREATE TEMP TABLE old_rare ON COMMIT DROP AS SELECT state, seq FROM holdfast.rare;
CREATE TEMP TABLE old_count ON COMMIT DROP AS
SELECT queue, state, sum(jobs) AS jobs FROM holdfast.queue_count GROUP BY queue, state HAVING sum(jobs) <> 0;
CREATE TEMP TABLE old_resource ON COMMIT DROP AS SELECT key, token, holder FROM holdfast.resource;
CREATE TEMP TABLE old_claim ON COMMIT DROP AS
SELECT claim.op_id, claimed.job FROM holdfast.claim CROSS JOIN LATERAL unnest(claim.jobs) AS claimed(job);
CREATE TEMP TABLE old_alarm ON COMMIT DROP AS
SELECT timed.job, min(alarm.due_at) AS due_at
FROM holdfast.alarm CROSS JOIN LATERAL unnest(alarm.jobs) AS timed(job) GROUP BY timed.job;
CREATE INDEX ON old_alarm (job);
ANALYZE old_alarm

-- name: select_segments_after
-- PostgreSQL itself cannot take a segment apart that has a NUL in it.
SELECT commit, place, events::text FROM holdfast.segment
WHERE (commit, place) > ($1::bigint, $2::integer)
ORDER BY commit, place LIMIT $3

-- name: add_commits
INSERT INTO job_commit (job, commit) SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING

-- name: analyze_commits
ANALYZE job_commit

-- name: end_rebuild
DROP TABLE job_commit, job_claim, old_ready, old_rare, old_count, old_resource, old_claim, old_alarm

-- name: select_origins
-- As rows of jobs that were just created: what never changes about them.
SELECT seq, job_id, 'queued', 1, 0, 0, 0, 0, 0::bigint, created_at, created_at, created_at, NULL::timestamptz,
       spec::text, origin::text, '{}'
FROM holdfast.job WHERE seq > $1::bigint ORDER BY seq LIMIT $2

-- name: select_stored_records
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec::text, origin::text, detail::text
FROM holdfast.record WHERE seq = ANY($1::bigint[])

-- name: select_commits_of_jobs
SELECT DISTINCT commit FROM job_commit WHERE job BETWEEN $1::bigint AND $2::bigint ORDER BY commit

-- name: select_last_published
SELECT job, fencing_token, max(end_sequence) FROM holdfast.event
WHERE sequence IS NOT NULL AND job BETWEEN $1::bigint AND $2::bigint
GROUP BY job, fencing_token

-- name: delete_states_between
DELETE FROM holdfast.state WHERE seq BETWEEN $1::bigint AND $2::bigint

-- name: insert_states
INSERT INTO holdfast.state (seq, fencing_token, ready_at, updated_at, due_at, ended_at, attempt, version,
                            transition_no, failures, crashes, state, owner, detail, log)
SELECT new.*, coalesce((SELECT array_agg(commit ORDER BY commit) FROM job_commit WHERE job = new.seq), '{}')
FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
            $7::integer[], $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::text[], $13::text[],
            $14::json[])
     AS new(seq, fencing_token, ready_at, updated_at, due_at, ended_at, attempt, version, transition_no, failures,
            crashes, state, owner, detail)

-- name: add_claimed
INSERT INTO job_claim (op_id, place, job) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])

-- name: fill_lists
DELETE FROM holdfast.state WHERE NOT EXISTS (SELECT FROM holdfast.job WHERE job.seq = state.seq);
DELETE FROM holdfast.ready;
DELETE FROM holdfast.rare;
DELETE FROM holdfast.alarm;
DELETE FROM holdfast.queue_count;
DELETE FROM holdfast.claim;
INSERT INTO holdfast.claim (op_id, jobs, claimed_at)
SELECT op_id, array_agg(job ORDER BY place), clock_timestamp() FROM job_claim GROUP BY op_id;
INSERT INTO holdfast.lane (queue, priority, kind, executor, region, locking)
SELECT DISTINCT queue, priority, kind, coalesce(executor, ''), coalesce(region, ''), lock IS NOT NULL
FROM holdfast.job
EXCEPT SELECT queue, priority, kind, executor, region, locking FROM holdfast.lane;
INSERT INTO holdfast.ready (lane, ready_at, seq, until, lock)
SELECT CASE WHEN job.lock IS NULL THEN lane.id ELSE -lane.id END, state.ready_at, job.seq, state.due_at, job.lock
FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
JOIN holdfast.lane
  ON lane.queue = job.queue AND lane.priority = job.priority AND lane.kind = job.kind
 AND lane.executor = coalesce(job.executor, '') AND lane.region = coalesce(job.region, '')
 AND lane.locking = (job.lock IS NOT NULL)
WHERE state.state = 'queued';
INSERT INTO holdfast.rare (state, seq)
SELECT state, seq FROM holdfast.state
WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered');
INSERT INTO holdfast.alarm (due_at, jobs)
SELECT min(due_at), array_agg(seq)
FROM (SELECT seq, due_at, (row_number() OVER (ORDER BY due_at, seq) - 1) / 500 AS part
      FROM holdfast.state WHERE due_at IS NOT NULL) AS timed
GROUP BY part;
INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT job.queue, state.state, count(*) FROM holdfast.state JOIN holdfast.job ON job.seq = state.seq
GROUP BY job.queue, state.state;
UPDATE holdfast.resource SET holder = NULL WHERE holder IS NOT NULL;
INSERT INTO holdfast.resource (key, token, holder)
SELECT job.lock,
       greatest(max(state.fencing_token),
                CASE WHEN job.lock NOT IN (SELECT key FROM old_resource)
                     THEN (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor') END),
       max(CASE WHEN state.owner IS NOT NULL THEN job.job_id END)
FROM holdfast.state JOIN holdfast.job ON job.seq = state.seq
WHERE job.lock IS NOT NULL AND job.seq IN (SELECT job FROM job_claim)
GROUP BY job.lock
ON CONFLICT (key) DO UPDATE SET token = greatest(excluded.token, resource.token), holder = excluded.holder

-- name: count_list_differences
-- A claim that the log does not have does no harm, and neither does an alarm that goes off too soon, or again in a
-- moment because the row of its job was locked.
SELECT (SELECT count(*) FROM (SELECT abs(lane), ready_at, seq, until, lock FROM holdfast.ready
                              EXCEPT SELECT * FROM old_ready) AS new)
     + (SELECT count(*) FROM (SELECT * FROM old_ready
                              EXCEPT SELECT abs(lane), ready_at, seq, until, lock FROM holdfast.ready) AS old)
     + (SELECT count(*) FROM (SELECT state, seq FROM holdfast.rare EXCEPT SELECT * FROM old_rare) AS new)
     + (SELECT count(*) FROM (SELECT * FROM old_rare EXCEPT SELECT state, seq FROM holdfast.rare) AS old)
     + (SELECT count(*) FROM (SELECT queue, state, jobs FROM holdfast.queue_count EXCEPT SELECT * FROM old_count) AS new)
     + (SELECT count(*) FROM (SELECT queue, state FROM old_count
                              EXCEPT SELECT queue, state FROM holdfast.queue_count) AS old)
     + (SELECT count(*) FROM (SELECT key, token, holder FROM holdfast.resource EXCEPT SELECT * FROM old_resource) AS new)
     + (SELECT count(*) FROM (SELECT op_id, job FROM job_claim EXCEPT SELECT * FROM old_claim) AS new)
     + (SELECT count(*) FROM holdfast.state LEFT JOIN old_alarm ON old_alarm.job = state.seq
        WHERE state.due_at IS NOT NULL
          AND coalesce(old_alarm.due_at > greatest(state.due_at, clock_timestamp() + interval '2 seconds'), true))
