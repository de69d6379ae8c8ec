SELECT log_id, coalesce(job.job_id, event.about), event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM event LEFT JOIN job ON job.seq = event.job
WHERE log_id > ?1
ORDER BY log_id
LIMIT ?2
