-- Statements that read events. Rows of event and fact come up to so many bytes, and one row more: the stored size,
-- which is never more and is known without reading the values, bounds it first; then their real size.

-- name: select_logged
SELECT job.seq, job.job_id, state.log FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
WHERE job.job_id = ANY($1::text[])

-- name: select_segments
SELECT commit, place, events::text FROM holdfast.segment
WHERE commit = ANY($1::bigint[])
ORDER BY commit, place

-- name: select_old_histories
SELECT log_id, job.job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, NULL, body
FROM holdfast.job JOIN holdfast.event ON event.job = job.seq AND event.event_offset IS NOT NULL
WHERE job.job_id = ANY($1::text[])
ORDER BY event.job, event.event_offset

-- name: select_old_history
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

-- name: select_facts
SELECT log_id, about, NULL, NULL, event_type, event_class, NULL, NULL, attempt, fencing_token, NULL, NULL,
       op_id, actor, occurred_at, received_at, given_id, body
FROM holdfast.fact
WHERE about = ANY($1::text[]) AND event_type = $2
ORDER BY log_id

-- name: select_published
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

-- name: select_published_before
-- What workers published, the newest first: before sequence $3 of token $2.
SELECT log_id, job_id, event_offset, transition_no, event_type, event_class, from_state,
       to_state, attempt, fencing_token, sequence, end_sequence, op_id, actor,
       occurred_at, received_at, NULL, body
FROM (
    SELECT *, sum(octet_length(body::text)) OVER (
        ORDER BY fencing_token DESC, sequence DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(pg_column_size(body) - 4) OVER (
            ORDER BY fencing_token DESC, sequence DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT event.*, $1::text AS job_id
            FROM holdfast.event
            WHERE job = (SELECT seq FROM holdfast.job WHERE job_id = $1) AND sequence IS NOT NULL
              AND (fencing_token, sequence) < ($2::bigint, $3::bigint)
            ORDER BY fencing_token DESC, sequence DESC
            LIMIT $4) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $5) AS sized
WHERE bytes_before IS NULL OR bytes_before < $5
ORDER BY fencing_token DESC, sequence DESC

-- name: select_logs
-- With the commits of the job's registry events, as they are at the same moment.
SELECT (SELECT state.log FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq WHERE job.job_id = $1),
       (SELECT job.seq FROM holdfast.job WHERE job.job_id = $1), page.*
FROM (SELECT) AS always LEFT JOIN (
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
ORDER BY log_id) AS page ON true
ORDER BY page.log_id

-- name: feed_end
SELECT holdfast.feed_end_4()

-- name: select_old_events
-- From before migration 4: all of it is complete.
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
             WHERE (place, log_id) > ($1::bigint, $2::bigint) AND place < 1::bigint << 59
             ORDER BY place, log_id
             LIMIT $3)
            UNION ALL
            (SELECT log_id, about, NULL, NULL, event_type, event_class, NULL,
                    NULL, attempt, fencing_token, NULL, NULL, op_id, actor,
                    occurred_at, received_at, given_id, body, place
             FROM holdfast.fact
             WHERE (place, log_id) > ($1::bigint, $2::bigint) AND place < 1::bigint << 59
             ORDER BY place, log_id
             LIMIT $3)
            ORDER BY place, log_id
            LIMIT $3) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $4) AS sized
WHERE bytes_before IS NULL OR bytes_before < $4
ORDER BY place, log_id

-- name: select_feed_rows
-- Batches of the workers and facts above number $1, up to $2.
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
             WHERE (place, log_id) > (1::bigint << 59, $1::bigint) AND (place, log_id) <= (1::bigint << 59, $2::bigint)
             ORDER BY place, log_id
             LIMIT $3)
            UNION ALL
            (SELECT log_id, about, NULL, NULL, event_type, event_class, NULL,
                    NULL, attempt, fencing_token, NULL, NULL, op_id, actor,
                    occurred_at, received_at, given_id, body, place
             FROM holdfast.fact
             WHERE (place, log_id) > (1::bigint << 59, $1::bigint) AND (place, log_id) <= (1::bigint << 59, $2::bigint)
             ORDER BY place, log_id
             LIMIT $3)
            ORDER BY place, log_id
            LIMIT $3) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $4) AS sized
WHERE bytes_before IS NULL OR bytes_before < $4
ORDER BY place, log_id

-- name: select_feed_segments
-- From place $5 of commit $1 up to commit $2: about $3 events, up to $4 bytes, and one segment more.
SELECT commit, place, events::text, size
FROM (
    SELECT *, sum(octet_length(events::text)) OVER (
        ORDER BY commit, place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(size) OVER kept AS events_before, sum(pg_column_size(events) - 4) OVER kept AS stored_before
        FROM (SELECT commit, place, size, events FROM holdfast.segment
              WHERE commit >= $1::bigint AND commit <= $2::bigint
                AND (commit > $1::bigint OR place + size > $5::integer)
              ORDER BY commit, place LIMIT $3) AS head
        WINDOW kept AS (ORDER BY commit, place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS stored
    WHERE (events_before IS NULL OR events_before < $3) AND (stored_before IS NULL OR stored_before < $4)) AS sized
WHERE bytes_before IS NULL OR bytes_before < $4
ORDER BY commit, place

-- name: select_job_ids
SELECT seq, job_id FROM holdfast.job WHERE seq = ANY($1::bigint[])
