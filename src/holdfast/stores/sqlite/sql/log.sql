-- The log: segments, and the rows of worker output, facts and events from before there were segments.

-- name: select_logs_of_jobs
SELECT job.seq, job.job_id, state.log
FROM job CROSS JOIN state ON state.seq = job.seq
WHERE job.job_id IN (SELECT value FROM json_each(?1))

-- name: select_segments
SELECT number, events FROM segment WHERE number IN (SELECT value FROM json_each(?1)) ORDER BY number

-- name: select_segments_after
SELECT number, events FROM segment WHERE number >= ?1 ORDER BY number

-- name: select_job_ids
SELECT seq, job_id FROM job WHERE seq IN (SELECT value FROM json_each(?1))

-- name: select_old_histories
SELECT log_id, job.job_id, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM job JOIN event ON event.job = job.seq AND event.event_offset IS NOT NULL
WHERE job.job_id IN (SELECT value FROM json_each(?1))
ORDER BY event.job, event.event_offset

-- name: select_old_history
SELECT log_id, ?2, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event
WHERE job = ?1 AND event_offset IS NOT NULL AND event_offset > ?3
ORDER BY event_offset

-- name: select_events
SELECT log_id, coalesce(job.job_id, event.about), event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event LEFT JOIN job ON job.seq = event.job
WHERE log_id > ?1
ORDER BY log_id

-- name: select_log_rows
WITH mine AS (SELECT seq FROM job WHERE job_id = :job_id),
     chosen AS (
         SELECT log_id FROM event
         WHERE job = (SELECT seq FROM mine) AND event_offset IS NOT NULL AND log_id > :after
         UNION ALL
         SELECT log_id FROM event
         WHERE job = (SELECT seq FROM mine) AND sequence IS NOT NULL AND log_id > :after AND :output
         UNION ALL
         SELECT log_id FROM event
         WHERE about = :job_id AND given_id IS NOT NULL AND log_id > :after
         ORDER BY log_id
         LIMIT :limit)
SELECT event.log_id, :job_id, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM chosen CROSS JOIN event ON event.log_id = chosen.log_id
ORDER BY chosen.log_id

-- name: select_facts
SELECT log_id, about, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event
WHERE about IN (SELECT value FROM json_each(?1)) AND given_id IS NOT NULL AND event_type = ?2
ORDER BY log_id

-- name: select_published
-- From the batch on that may contain sequence ?3.
SELECT log_id, ?1, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event
WHERE job = (SELECT seq FROM job WHERE job_id = ?1) AND fencing_token = ?2 AND sequence IS NOT NULL
  AND sequence >= coalesce((
      SELECT before.sequence FROM event AS before
      WHERE before.job = (SELECT seq FROM job WHERE job_id = ?1) AND before.fencing_token = ?2
        AND before.sequence IS NOT NULL AND before.sequence <= ?3
      ORDER BY before.sequence DESC LIMIT 1), ?3)
ORDER BY sequence
LIMIT ?4

-- name: select_published_before
-- What workers published, the newest first: before sequence ?3 of token ?2.
SELECT log_id, ?1, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event
WHERE job = (SELECT seq FROM job WHERE job_id = ?1) AND sequence IS NOT NULL
  AND (fencing_token, sequence) < (?2, ?3)
ORDER BY fencing_token DESC, sequence DESC
LIMIT ?4
