SELECT log_id, job.job_id, event_offset, event.transition_no, event_type, event_class, from_state,
       to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, NULL, body
FROM holdfast.job JOIN holdfast.event ON event.job = job.seq AND event.event_offset IS NOT NULL
WHERE job.job_id = ANY($1::text[])
ORDER BY event.job, event.event_offset
