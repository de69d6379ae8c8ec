-- What a commit writes. One statement serves all jobs that get the same values.

-- name: select_last_numbers
SELECT max(coalesce((SELECT max(seq) FROM job), 0),
           coalesce((SELECT value FROM meta WHERE name = 'seq_floor'), 0)),
       max(coalesce((SELECT max(number) FROM segment), 0),
           coalesce((SELECT max(log_id) FROM event), 0) >> 20,
           coalesce((SELECT value FROM meta WHERE name = 'log_floor'), 0))

-- name: select_lane
SELECT id FROM lane
WHERE queue = ? AND priority = ? AND kind = ? AND executor IS ? AND region IS ? AND locking = ?

-- name: select_seq
SELECT seq FROM job WHERE job_id = ?

-- name: insert_lane
INSERT INTO lane (queue, priority, kind, executor, region, locking) VALUES (?, ?, ?, ?, ?, ?) RETURNING id

-- name: insert_job
INSERT INTO job (seq, job_id, lane, lock, created_at, correlation_id, submitted_by, origin, spec, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_states
INSERT INTO state (seq, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at, due_at,
                   updated_at, started_at, ended_at, claim, log, detail)
SELECT value, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16 FROM json_each(?1)

-- name: insert_state
INSERT INTO state (seq, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at, due_at,
                   updated_at, started_at, ended_at, claim, log, detail)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)

-- name: update_states
UPDATE state
SET state = ?3, attempt = ?4, version = ?5, transition_no = ?6, failures = ?7, crashes = ?8,
    fencing_token = ?9, ready_at = coalesce(?10, ready_at), due_at = ?11, updated_at = ?12, started_at = ?13,
    ended_at = ?14, claim = nullif(coalesce(?15, claim), 0),
    log = CASE WHEN ?16 = '' THEN log WHEN log = '' THEN ?16 ELSE log || ',' || ?16 END, detail = ?17
WHERE seq IN (SELECT value FROM json_each(?1)) AND version = ?2

-- name: update_state
UPDATE state
SET state = ?3, attempt = ?4, version = ?5, transition_no = ?6, failures = ?7, crashes = ?8,
    fencing_token = ?9, ready_at = coalesce(?10, ready_at), due_at = ?11, updated_at = ?12, started_at = ?13,
    ended_at = ?14, claim = nullif(coalesce(?15, claim), 0),
    log = CASE WHEN ?16 = '' THEN log WHEN log = '' THEN ?16 ELSE log || ',' || ?16 END, detail = ?17
WHERE seq = ?1 AND version = ?2

-- name: touch_state
UPDATE state
SET due_at = ?, updated_at = ?, detail = ?
WHERE seq = ? AND version = ? AND fencing_token = ?

-- name: insert_ready
INSERT INTO ready (lane, ready_at, seq, until, lock)
SELECT ?2, ?3, value, ?4, ?5 FROM json_each(?1)

-- name: insert_one_ready
INSERT INTO ready (lane, ready_at, seq) VALUES (?, ?, ?)

-- name: delete_ready
DELETE FROM ready WHERE lane = ? AND ready_at = ? AND seq = ?

-- name: insert_rare
INSERT INTO rare (state, seq) VALUES (?, ?)

-- name: delete_rare
DELETE FROM rare WHERE state = ? AND seq = ?

-- name: select_claim
SELECT id FROM claim WHERE op_id = ?

-- name: insert_claim
INSERT INTO claim (op_id, owner, lease, jobs) VALUES (?, ?, ?, ?) RETURNING id

-- name: extend_claim
UPDATE claim
SET jobs = (SELECT json_group_array(value) FROM (
        SELECT value FROM json_each(jobs) UNION ALL SELECT value FROM json_each(?2)))
WHERE id = ?1

-- name: insert_segment
INSERT INTO segment (number, event_type, occurred_at, events) VALUES (?, ?, ?, ?)

-- name: insert_batch
INSERT INTO event (log_id, job, event_type, event_class, attempt, fencing_token, sequence,
                   end_sequence, actor, occurred_at, received_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_fact
INSERT INTO event (log_id, event_type, event_class, attempt, fencing_token, op_id, actor,
                   occurred_at, received_at, given_id, about, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (given_id) WHERE given_id IS NOT NULL DO NOTHING

-- name: put_resource
INSERT INTO resource (key, token, holder) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, holder = excluded.holder
WHERE excluded.token >= resource.token

-- name: add_queue_count
INSERT INTO queue_count (queue, state, jobs) VALUES (?, ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET jobs = jobs + excluded.jobs
