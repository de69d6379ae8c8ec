WITH found AS MATERIALIZED (
    SELECT ready.*
    FROM unnest($2::text[], $3::smallint[], $4::timestamptz[]) AS lane(queue, priority, first_ready_at)
    CROSS JOIN LATERAL (
        SELECT lock, seq, job_id, state, attempt, version, transition_no, failures, crashes,
               fencing_token, ready_at, created_at, updated_at, ended_at, spec::text, detail::text, xmin
        FROM holdfast.job
        WHERE state = 'queued' AND queue = lane.queue AND priority = lane.priority
          AND ready_at <= coalesce($1::timestamptz, statement_timestamp())
          AND ready_at >= lane.first_ready_at
          AND (due_at IS NULL OR due_at > coalesce($1::timestamptz, statement_timestamp()))
          AND executor IS NOT DISTINCT FROM $5::text
          AND (region IS NULL OR $6::text IS NULL OR region = $6::text)
          AND ($7::text[] IS NULL OR kind = ANY($7::text[]))
          AND (lock IS NULL OR NOT EXISTS (
                SELECT FROM holdfast.resource
                WHERE resource.key = job.lock AND resource.holder IS NOT NULL))
        ORDER BY ready_at, seq
        LIMIT $10) AS ready
    LIMIT $10)
SELECT clock_timestamp(),
       EXISTS (
           SELECT FROM holdfast.job
           WHERE due_at IS NOT NULL
             AND due_at BETWEEN $8::timestamptz AND coalesce($1::timestamptz, statement_timestamp())),
       EXISTS (SELECT FROM holdfast.claim WHERE op_id = ANY($9::text[])) AS is_claimed,
       found.*
FROM (SELECT) AS always LEFT JOIN found ON true
