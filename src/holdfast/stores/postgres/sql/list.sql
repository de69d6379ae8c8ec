-- Pages of jobs: up to $11 bytes, and one row more. The stored size, which is never more and is known without
-- reading the values, bounds it first; then their real size. Long specs are compared where they are read.

-- name: list_jobs
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM (
    SELECT *, sum(octet_length(spec::text) + octet_length(origin::text) + octet_length(detail::text)) OVER (
        ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT chosen.*, coalesce(chosen.own, segment.detail) AS detail,
               sum(pg_column_size(spec) + pg_column_size(origin) + coalesce(pg_column_size(own), 4) - 12) OVER (
                   ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no,
                   state.failures, state.crashes, state.fencing_token, state.ready_at, job.created_at,
                   state.updated_at, state.ended_at, job.spec, job.origin, state.detail AS own, state.log
            FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
            WHERE job.seq > $1 AND job.seq <= $2
              AND ($3::text IS NULL OR job.queue = $3)
              AND ($4::text[] IS NULL OR job.queue LIKE ANY($4))
              AND ($5::text[] IS NULL OR job.region IS NULL OR job.region = ANY($5))
              AND ($6::text[] IS NULL OR job.kind = ANY($6))
              AND ($12::text IS NULL OR pg_column_size(job.spec) > 2000
                   OR position($12 IN job.spec::text) > 0)
              AND ($7::text[] IS NULL OR state.state = ANY($7))
              AND ($8::text IS NULL OR state.owner = $8)
              AND ($9::jsonb IS NULL OR pg_column_size(job.spec) > 2000
                   OR (holdfast.shown(job.spec) -> 'labels')::jsonb @> $9)
            ORDER BY job.seq
            LIMIT $10) AS chosen
        LEFT JOIN holdfast.segment
          ON segment.commit = CASE WHEN chosen.own IS NULL THEN chosen.log[cardinality(chosen.log)] END
         AND segment.place = 0) AS stored
    WHERE stored_before IS NULL OR stored_before < $11) AS sized
WHERE bytes_before IS NULL OR bytes_before < $11
ORDER BY seq

-- name: list_jobs_newest
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM (
    SELECT *, sum(octet_length(spec::text) + octet_length(origin::text) + octet_length(detail::text)) OVER (
        ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT chosen.*, coalesce(chosen.own, segment.detail) AS detail,
               sum(pg_column_size(spec) + pg_column_size(origin) + coalesce(pg_column_size(own), 4) - 12) OVER (
                   ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no,
                   state.failures, state.crashes, state.fencing_token, state.ready_at, job.created_at,
                   state.updated_at, state.ended_at, job.spec, job.origin, state.detail AS own, state.log
            FROM holdfast.job JOIN holdfast.state ON state.seq = job.seq
            WHERE job.seq < $1 AND job.seq >= $2
              AND ($3::text IS NULL OR job.queue = $3)
              AND ($4::text[] IS NULL OR job.queue LIKE ANY($4))
              AND ($5::text[] IS NULL OR job.region IS NULL OR job.region = ANY($5))
              AND ($6::text[] IS NULL OR job.kind = ANY($6))
              AND ($12::text IS NULL OR pg_column_size(job.spec) > 2000
                   OR position($12 IN job.spec::text) > 0)
              AND ($7::text[] IS NULL OR state.state = ANY($7))
              AND ($8::text IS NULL OR state.owner = $8)
              AND ($9::jsonb IS NULL OR pg_column_size(job.spec) > 2000
                   OR (holdfast.shown(job.spec) -> 'labels')::jsonb @> $9)
            ORDER BY job.seq DESC
            LIMIT $10) AS chosen
        LEFT JOIN holdfast.segment
          ON segment.commit = CASE WHEN chosen.own IS NULL THEN chosen.log[cardinality(chosen.log)] END
         AND segment.place = 0) AS stored
    WHERE stored_before IS NULL OR stored_before < $11) AS sized
WHERE bytes_before IS NULL OR bytes_before < $11
ORDER BY seq DESC

-- name: list_rare_jobs
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM (
    SELECT *, sum(octet_length(spec::text) + octet_length(origin::text) + octet_length(detail::text)) OVER (
        ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT chosen.*, coalesce(chosen.own, segment.detail) AS detail,
               sum(pg_column_size(spec) + pg_column_size(origin) + coalesce(pg_column_size(own), 4) - 12) OVER (
                   ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT found.*
            FROM unnest($7::text[]) AS wanted (state) CROSS JOIN LATERAL (
            SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no,
                   state.failures, state.crashes, state.fencing_token, state.ready_at, job.created_at,
                   state.updated_at, state.ended_at, job.spec, job.origin, state.detail AS own, state.log
            FROM holdfast.rare JOIN holdfast.job ON job.seq = rare.seq JOIN holdfast.state ON state.seq = rare.seq
            WHERE rare.state = wanted.state AND rare.seq > $1 AND rare.seq <= $2
              AND ($3::text IS NULL OR job.queue = $3)
              AND ($4::text[] IS NULL OR job.queue LIKE ANY($4))
              AND ($5::text[] IS NULL OR job.region IS NULL OR job.region = ANY($5))
              AND ($6::text[] IS NULL OR job.kind = ANY($6))
              AND ($12::text IS NULL OR pg_column_size(job.spec) > 2000
                   OR position($12 IN job.spec::text) > 0)
              AND ($8::text IS NULL OR state.owner = $8)
              AND ($9::jsonb IS NULL OR pg_column_size(job.spec) > 2000
                   OR (holdfast.shown(job.spec) -> 'labels')::jsonb @> $9)
            ORDER BY rare.seq
            LIMIT $10) AS found
            ORDER BY found.seq
            LIMIT $10) AS chosen
        LEFT JOIN holdfast.segment
          ON segment.commit = CASE WHEN chosen.own IS NULL THEN chosen.log[cardinality(chosen.log)] END
         AND segment.place = 0) AS stored
    WHERE stored_before IS NULL OR stored_before < $11) AS sized
WHERE bytes_before IS NULL OR bytes_before < $11
ORDER BY seq

-- name: list_rare_jobs_newest
SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
       created_at, updated_at, ended_at, spec, origin, detail
FROM (
    SELECT *, sum(octet_length(spec::text) + octet_length(origin::text) + octet_length(detail::text)) OVER (
        ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT chosen.*, coalesce(chosen.own, segment.detail) AS detail,
               sum(pg_column_size(spec) + pg_column_size(origin) + coalesce(pg_column_size(own), 4) - 12) OVER (
                   ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stored_before
        FROM (
            SELECT found.*
            FROM unnest($7::text[]) AS wanted (state) CROSS JOIN LATERAL (
            SELECT job.seq, job.job_id, state.state, state.attempt, state.version, state.transition_no,
                   state.failures, state.crashes, state.fencing_token, state.ready_at, job.created_at,
                   state.updated_at, state.ended_at, job.spec, job.origin, state.detail AS own, state.log
            FROM holdfast.rare JOIN holdfast.job ON job.seq = rare.seq JOIN holdfast.state ON state.seq = rare.seq
            WHERE rare.state = wanted.state AND rare.seq < $1 AND rare.seq >= $2
              AND ($3::text IS NULL OR job.queue = $3)
              AND ($4::text[] IS NULL OR job.queue LIKE ANY($4))
              AND ($5::text[] IS NULL OR job.region IS NULL OR job.region = ANY($5))
              AND ($6::text[] IS NULL OR job.kind = ANY($6))
              AND ($12::text IS NULL OR pg_column_size(job.spec) > 2000
                   OR position($12 IN job.spec::text) > 0)
              AND ($8::text IS NULL OR state.owner = $8)
              AND ($9::jsonb IS NULL OR pg_column_size(job.spec) > 2000
                   OR (holdfast.shown(job.spec) -> 'labels')::jsonb @> $9)
            ORDER BY rare.seq DESC
            LIMIT $10) AS found
            ORDER BY found.seq DESC
            LIMIT $10) AS chosen
        LEFT JOIN holdfast.segment
          ON segment.commit = CASE WHEN chosen.own IS NULL THEN chosen.log[cardinality(chosen.log)] END
         AND segment.place = 0) AS stored
    WHERE stored_before IS NULL OR stored_before < $11) AS sized
WHERE bytes_before IS NULL OR bytes_before < $11
ORDER BY seq DESC

-- name: select_list_bounds
SELECT (SELECT min(seq) FROM holdfast.job WHERE seq > $1), (SELECT max(seq) FROM holdfast.job)

-- name: select_list_bounds_newest
SELECT (SELECT max(seq) FROM holdfast.job WHERE seq < $1), (SELECT min(seq) FROM holdfast.job)

-- name: select_any
SELECT 1 FROM holdfast.queue_count
WHERE ($1::text IS NULL OR queue = $1)
  AND ($2::text[] IS NULL OR queue LIKE ANY($2))
  AND ($3::text[] IS NULL OR state = ANY($3))
GROUP BY queue, state HAVING sum(jobs) > 0
LIMIT 1

-- name: select_rare_bound
SELECT found.seq
FROM unnest($2::text[]) AS wanted (state) CROSS JOIN LATERAL (
    SELECT seq FROM holdfast.rare
    WHERE rare.state = wanted.state AND seq > $1
    ORDER BY seq
    LIMIT 1 OFFSET $3) AS found
ORDER BY seq
LIMIT 1

-- name: select_rare_bound_newest
SELECT found.seq
FROM unnest($2::text[]) AS wanted (state) CROSS JOIN LATERAL (
    SELECT seq FROM holdfast.rare
    WHERE rare.state = wanted.state AND seq < $1
    ORDER BY seq DESC
    LIMIT 1 OFFSET $3) AS found
ORDER BY seq DESC
LIMIT 1

-- name: select_ids_from
-- In the order of the database's own collation, ids that begin alike are next to each other, give or take a few.
SELECT job_id FROM (
    SELECT job_id FROM holdfast.job WHERE job_id >= $1 ORDER BY job_id LIMIT $2) AS next
WHERE starts_with(job_id, $1)
LIMIT $3

-- name: select_ids_by_end
-- Of the newest ids in a range: only the index of ids is read.
SELECT job_id FROM (
    SELECT job_id FROM holdfast.job WHERE job_id >= $2 AND job_id < $3 ORDER BY job_id DESC LIMIT $4) AS newest
WHERE right(job_id, length($1)) = $1
LIMIT $5
