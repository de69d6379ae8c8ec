-- From the batch on that may contain sequence $3.
SELECT log_id, $1::text, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, NULL, body
FROM holdfast.event
WHERE job = (SELECT seq FROM holdfast.job WHERE job_id = $1) AND fencing_token = $2 AND sequence IS NOT NULL
  AND sequence >= coalesce((
      SELECT earlier.sequence FROM holdfast.event AS earlier
      WHERE earlier.job = (SELECT seq FROM holdfast.job WHERE job_id = $1) AND earlier.fencing_token = $2
        AND earlier.sequence IS NOT NULL AND earlier.sequence <= $3
      ORDER BY earlier.sequence DESC LIMIT 1), $3)
ORDER BY sequence
LIMIT $4
