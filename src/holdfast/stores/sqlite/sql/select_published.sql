-- From the batch on that may contain sequence ?3.
SELECT log_id, ?1, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
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
