-- Up to $4 bytes, and one row more. The stored size, which is never more and is known without reading the
-- values, bounds it first; then their real size.
WITH complete AS (SELECT holdfast.base() + pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS below)
SELECT log_id, job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, given_id, body, place
FROM (
    SELECT *, sum(octet_length(body::text)) OVER (
        ORDER BY place, log_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(pg_column_size(body) - 4) OVER (
            ORDER BY place, log_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            (SELECT log_id, job.job_id, event_offset, event.transition_no, event_type, event_class, from_state,
                    to_state, event.attempt, event.fencing_token, sequence, end_sequence, op_id, actor,
                    occurred_at, received_at, NULL AS given_id, body, place
             FROM holdfast.event JOIN holdfast.job ON job.seq = event.job
             WHERE (place, log_id) > ($1::bigint, $2::bigint) AND place < (SELECT below FROM complete)
             ORDER BY place, log_id
             LIMIT $3)
            UNION ALL
            (SELECT log_id, about, NULL, NULL, event_type, event_class, NULL,
                    NULL, attempt, fencing_token, NULL, NULL, op_id, actor,
                    occurred_at, received_at, given_id, body, place
             FROM holdfast.fact
             WHERE (place, log_id) > ($1::bigint, $2::bigint) AND place < (SELECT below FROM complete)
             ORDER BY place, log_id
             LIMIT $3)
            ORDER BY place, log_id
            LIMIT $3) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $4) AS sized
WHERE bytes_before IS NULL OR bytes_before < $4
ORDER BY place, log_id
