SELECT log_id, ?1, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event
WHERE job = (SELECT seq FROM job WHERE job_id = ?1) AND event_offset IS NOT NULL AND event_offset > ?2
ORDER BY event_offset
