WITH mine AS (SELECT seq FROM job WHERE job_id = :job_id),
     entries AS (
         SELECT * FROM event
         WHERE job = (SELECT seq FROM mine) AND event_offset IS NOT NULL AND log_id > :after
         UNION ALL
         SELECT * FROM event
         WHERE job = (SELECT seq FROM mine) AND sequence IS NOT NULL AND log_id > :after AND :output
         UNION ALL
         SELECT * FROM event
         WHERE about = :job_id AND given_id IS NOT NULL AND log_id > :after)
SELECT log_id, :job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM entries
ORDER BY log_id
LIMIT :limit
