(SELECT log_id, $1::text, event_offset, transition_no, event_type, event_class, from_state,
        to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
        occurred_at, received_at, NULL, body
 FROM holdfast.event
 WHERE job = (SELECT seq FROM holdfast.job WHERE job_id = $1) AND log_id > $2
   AND (event_offset IS NOT NULL OR (sequence IS NOT NULL AND $4::boolean))
 ORDER BY log_id
 LIMIT $5)
UNION ALL
(SELECT log_id, about, NULL, NULL, event_type, event_class, NULL,
        NULL, attempt, fencing_token, NULL, NULL, op_id, actor,
        occurred_at, received_at, given_id, body
 FROM holdfast.fact
 WHERE about = $1 AND log_id > $3
 ORDER BY log_id
 LIMIT $5)
ORDER BY log_id
LIMIT $5
