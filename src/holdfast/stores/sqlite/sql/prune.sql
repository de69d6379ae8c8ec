-- Ended jobs and all that refers to them, and old output.

-- name: select_prunable
SELECT state.seq, lane.queue, state.state, job.job_id, state.fencing_token, state.log
FROM state
CROSS JOIN job ON job.seq = state.seq
CROSS JOIN lane ON lane.id = job.lane
WHERE state.ended_at IS NOT NULL AND state.ended_at < ?1
ORDER BY state.seq
LIMIT ?2

-- name: count_prunable
SELECT (SELECT count(*) FROM state WHERE ended_at IS NOT NULL AND ended_at < ?1),
       (SELECT count(*) FROM event
        WHERE sequence IS NOT NULL AND received_at < ?2
          AND job NOT IN (SELECT seq FROM state WHERE ended_at IS NOT NULL AND ended_at < ?1))

-- name: select_pruned_segments
SELECT number, event_type, events FROM segment WHERE number IN (SELECT value FROM json_each(?1))

-- name: update_segment
UPDATE segment SET events = ? WHERE number = ?

-- name: delete_segments
DELETE FROM segment WHERE number IN (SELECT value FROM json_each(?1))

-- name: select_old_claims
SELECT DISTINCT op_id FROM event
WHERE event_offset IS NOT NULL AND event_type = 'job_claimed' AND job IN (SELECT value FROM json_each(?1))

-- name: shorten_claims
UPDATE claim
SET jobs = (SELECT json_group_array(value) FROM json_each(jobs)
            WHERE value NOT IN (SELECT value FROM json_each(?2)))
WHERE op_id IN (SELECT value FROM json_each(?1))

-- name: delete_claims
DELETE FROM claim WHERE op_id IN (SELECT value FROM json_each(?1)) AND jobs = '[]'

-- name: delete_registry_events
DELETE FROM event
WHERE event_offset IS NOT NULL AND job IN (SELECT value FROM json_each(?1))

-- name: delete_worker_events
DELETE FROM event
WHERE sequence IS NOT NULL AND job IN (SELECT value FROM json_each(?1))

-- name: delete_facts
DELETE FROM event
WHERE given_id IS NOT NULL AND about IN (SELECT value FROM json_each(?1))

-- name: delete_output
DELETE FROM event WHERE log_id IN (
    SELECT log_id FROM event WHERE sequence IS NOT NULL AND received_at < ?1 LIMIT ?2)

-- name: delete_jobs
DELETE FROM job WHERE seq IN (SELECT value FROM json_each(?1))

-- name: delete_states
DELETE FROM state WHERE seq IN (SELECT value FROM json_each(?1))

-- name: delete_rare_jobs
DELETE FROM rare WHERE (state, seq) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
