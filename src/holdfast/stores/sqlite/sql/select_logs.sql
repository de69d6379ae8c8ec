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
SELECT event.log_id, :job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM chosen CROSS JOIN event ON event.log_id = chosen.log_id
ORDER BY chosen.log_id
