-- Up to $11 bytes, and one row more. The stored size, which is never more and is known without reading the
-- values, bounds it first; then their real size. Long specs are compared where they are read.
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM (
    SELECT *, sum(octet_length(spec::text) + octet_length(detail::text)) OVER (
        ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT *, sum(pg_column_size(spec) + pg_column_size(detail) - 8) OVER (
            ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT found.*
            FROM unnest($7::text[]) AS wanted (state) CROSS JOIN LATERAL (
            SELECT job.*
            FROM holdfast.job
            WHERE job.state = wanted.state AND job.state IN
                  ('validating', 'partial_success', 'failed', 'cancelled', 'timeout', 'dead_lettered')
              AND seq < $1 AND seq >= $2
              AND ($3::text IS NULL OR queue = $3)
              AND ($4::text[] IS NULL OR queue LIKE ANY($4))
              AND ($5::text[] IS NULL OR region IS NULL OR region = ANY($5))
              AND ($6::text[] IS NULL OR kind = ANY($6))
              AND ($8::text IS NULL OR owner = $8)
              AND ($9::jsonb IS NULL OR pg_column_size(spec) > 2000
                   OR (holdfast.shown(spec) -> 'labels')::jsonb @> $9)
            ORDER BY seq DESC
            LIMIT $10) AS found
            ORDER BY seq DESC
            LIMIT $10) AS chosen) AS stored
    WHERE stored_before IS NULL OR stored_before < $11) AS sized
WHERE bytes_before IS NULL OR bytes_before < $11
ORDER BY seq DESC
