-- Up to $6 bytes, and one row more. The stored size, which is never more and is known without reading the
-- values, bounds it first; then their real size.
SELECT log_id, job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body
FROM (
    SELECT *, sum(octet_length(body::text)) OVER (
        ORDER BY log_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(pg_column_size(body) - 4) OVER (
            ORDER BY log_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            (SELECT log_id, $1::text AS job_id, event_offset, transition_no, event_type, event_class, from_state,
                    to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
                    occurred_at, received_at, NULL AS given_id, body
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
            LIMIT $5) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $6) AS sized
WHERE bytes_before IS NULL OR bytes_before < $6
ORDER BY log_id
