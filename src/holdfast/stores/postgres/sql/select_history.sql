-- Up to $4 bytes, and one row more. The stored size, which is never more and is known without reading the
-- values, bounds it first; then their real size.
SELECT log_id, job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, NULL, body
FROM (
    SELECT *, sum(octet_length(body::text)) OVER (
        ORDER BY event_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(pg_column_size(body) - 4) OVER (
            ORDER BY event_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS stored_before
        FROM (
            SELECT event.*, $1::text AS job_id
            FROM holdfast.event
            WHERE job = (SELECT seq FROM holdfast.job WHERE job_id = $1) AND event_offset > $2
            ORDER BY event_offset
            LIMIT $3) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $4) AS sized
WHERE bytes_before IS NULL OR bytes_before < $4
ORDER BY event_offset
