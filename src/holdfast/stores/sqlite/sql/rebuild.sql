-- The records, and all that jobs are found by, made again from the log.

-- name: begin_rebuild
CREATE TEMP TABLE job_segment (job INTEGER, number INTEGER, PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TEMP TABLE job_claim (op_id TEXT, place INTEGER, job INTEGER, PRIMARY KEY (op_id, place)) WITHOUT ROWID;
CREATE TEMP TABLE old_ready AS SELECT * FROM ready;
CREATE TEMP TABLE old_rare AS SELECT * FROM rare;
CREATE TEMP TABLE old_count AS SELECT queue, state, jobs FROM queue_count WHERE jobs <> 0;
CREATE TEMP TABLE old_resource AS SELECT * FROM resource;
CREATE TEMP TABLE old_claim AS
SELECT claim.op_id, claimed.value AS job
FROM claim JOIN json_each(CASE WHEN json_valid(claim.jobs) THEN claim.jobs ELSE '[]' END) AS claimed;
CREATE TEMP TABLE old_alarm AS
SELECT item.value AS job, min(alarm.due_at) AS due_at
FROM alarm JOIN json_each(CASE WHEN json_valid(alarm.jobs) THEN alarm.jobs ELSE '[]' END) AS item
GROUP BY item.value;
CREATE INDEX old_alarm_job ON old_alarm (job);
INSERT INTO job_segment
SELECT DISTINCT item.value, segment.number
FROM segment JOIN json_each(CASE json_type(segment.events, '$.job') WHEN 'array' THEN segment.events -> '$.job'
                            ELSE json_array(segment.events ->> '$.job') END) AS item;

-- name: end_rebuild
DROP TABLE job_segment;
DROP TABLE job_claim;
DROP TABLE old_ready;
DROP TABLE old_rare;
DROP TABLE old_count;
DROP TABLE old_resource;
DROP TABLE old_claim;
DROP TABLE old_alarm

-- name: select_job_without_lane
SELECT job_id FROM job WHERE lane NOT IN (SELECT id FROM lane) LIMIT 1

-- name: select_origins
-- As rows of jobs that were just created: what never changes about them.
SELECT job.seq, job.job_id, job.payload, job.created_at, job.created_at, job.created_at,
       'queued', 1, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL,
       lane.kind, lane.queue, lane.priority, lane.region, lane.executor, job.lock, job.correlation_id,
       job.submitted_by, job.origin, job.spec, NULL
FROM job CROSS JOIN lane ON lane.id = job.lane
WHERE job.seq > ?1
ORDER BY job.seq
LIMIT ?2

-- name: select_segments_of_jobs
SELECT number, events FROM segment
WHERE number IN (SELECT number FROM job_segment WHERE job BETWEEN ?1 AND ?2)
ORDER BY number

-- name: select_last_published
SELECT job, fencing_token, max(end_sequence) FROM event
WHERE sequence IS NOT NULL AND job BETWEEN ?1 AND ?2
GROUP BY job, fencing_token

-- name: select_rebuilt_logs
SELECT job, group_concat(number, ',' ORDER BY number) FROM job_segment WHERE job BETWEEN ?1 AND ?2 GROUP BY job

-- name: delete_states_between
DELETE FROM state WHERE seq BETWEEN ?1 AND ?2

-- name: add_claim
INSERT INTO claim (op_id, owner, jobs) VALUES (?, ?, '[]') ON CONFLICT (op_id) DO UPDATE SET owner = excluded.owner

-- name: select_claims
SELECT op_id, id FROM claim WHERE op_id IN (SELECT value FROM json_each(?1))

-- name: add_claimed
INSERT INTO job_claim (op_id, place, job) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: fill_lists
DELETE FROM state WHERE seq NOT IN (SELECT seq FROM job);
DELETE FROM ready;
DELETE FROM rare;
DELETE FROM alarm;
DELETE FROM queue_count;
DELETE FROM claim WHERE op_id NOT IN (SELECT op_id FROM job_claim);
UPDATE claim
SET lease = NULL,
    jobs = (SELECT json_group_array(job ORDER BY place) FROM job_claim WHERE job_claim.op_id = claim.op_id);
INSERT INTO ready (lane, ready_at, seq, until, lock)
SELECT job.lane, state.ready_at, state.seq, state.due_at, job.lock
FROM state JOIN job ON job.seq = state.seq
WHERE state.state = 'queued' ORDER BY job.lane, state.ready_at, state.seq;
INSERT INTO rare (state, seq)
SELECT state, seq FROM state
WHERE state IN ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered')
ORDER BY state, seq;
INSERT INTO alarm (due_at, jobs)
SELECT min(due_at), json_group_array(seq)
FROM (SELECT due_at, seq, (row_number() OVER (ORDER BY due_at, seq) - 1) / 500 AS part
      FROM state WHERE due_at IS NOT NULL)
GROUP BY part;
INSERT INTO queue_count (queue, state, jobs)
SELECT lane.queue, state.state, count(*)
FROM state JOIN job ON job.seq = state.seq JOIN lane ON lane.id = job.lane
GROUP BY lane.queue, state.state;
UPDATE resource SET holder = NULL
WHERE holder IS NOT NULL AND holder NOT IN (
    SELECT job.job_id FROM state JOIN job ON job.seq = state.seq
    WHERE job.lock = resource.key AND state.state IN ('assigned', 'running', 'aggregating'));
INSERT INTO resource (key, token, holder)
SELECT job.lock,
       max(max(state.fencing_token),
           CASE WHEN job.lock IN (SELECT key FROM old_resource) THEN 0
                ELSE coalesce((SELECT value FROM meta WHERE name = 'token_floor'), 0) END),
       max(CASE WHEN state.state IN ('assigned', 'running', 'aggregating') THEN job.job_id END)
FROM state JOIN job ON job.seq = state.seq
WHERE job.lock IS NOT NULL AND job.seq IN (SELECT job FROM job_claim)
GROUP BY job.lock
ON CONFLICT (key) DO UPDATE SET token = max(excluded.token, token), holder = excluded.holder

-- name: count_list_differences
-- A claim that the log does not have does no harm, and neither does an alarm that goes off too soon.
SELECT (SELECT count(*) FROM (SELECT * FROM ready EXCEPT SELECT * FROM old_ready))
     + (SELECT count(*) FROM (SELECT * FROM old_ready EXCEPT SELECT * FROM ready))
     + (SELECT count(*) FROM (SELECT * FROM rare EXCEPT SELECT * FROM old_rare))
     + (SELECT count(*) FROM (SELECT * FROM old_rare EXCEPT SELECT * FROM rare))
     + (SELECT count(*) FROM (SELECT queue, state, jobs FROM queue_count EXCEPT SELECT * FROM old_count))
     + (SELECT count(*) FROM (SELECT queue, state FROM old_count EXCEPT SELECT queue, state FROM queue_count))
     + (SELECT count(*) FROM (SELECT * FROM resource EXCEPT SELECT * FROM old_resource))
     + (SELECT count(*) FROM (SELECT op_id, job FROM job_claim EXCEPT SELECT * FROM old_claim))
     + (SELECT count(*) FROM state LEFT JOIN old_alarm ON old_alarm.job = state.seq
        WHERE state.due_at IS NOT NULL AND coalesce(old_alarm.due_at > state.due_at, true))
