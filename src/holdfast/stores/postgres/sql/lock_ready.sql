WITH found AS MATERIALIZED (
    SELECT ready.*
    FROM unnest($2::text[], $3::smallint[], $4::timestamptz[], $5::bigint[])
             AS lane(queue, priority, after_ready_at, after_seq)
    CROSS JOIN LATERAL (
        SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes,
               fencing_token, ready_at, created_at, updated_at, ended_at, spec, detail
        FROM holdfast.job
        WHERE state = 'queued' AND queue = lane.queue AND priority = lane.priority
          AND ready_at <= coalesce($1::timestamptz, statement_timestamp())
          AND (ready_at, seq) > (lane.after_ready_at, lane.after_seq)
          AND (due_at IS NULL OR due_at > coalesce($1::timestamptz, statement_timestamp()))
          AND executor IS NOT DISTINCT FROM $6::text
          AND (region IS NULL OR $7::text IS NULL OR region = $7::text)
          AND ($8::text[] IS NULL OR kind = ANY($8::text[]))
          AND (lock IS NULL OR NOT EXISTS (
                SELECT FROM holdfast.resource
                WHERE resource.key = job.lock AND resource.holder IS NOT NULL)
              AND pg_try_advisory_xact_lock(hashtext('holdfast.resource'), hashtext(lock) & 2047))
        ORDER BY ready_at, seq
        LIMIT $9
        FOR NO KEY UPDATE SKIP LOCKED) AS ready
    LIMIT $9)
SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       found.*, NULL::xid
FROM (SELECT) AS always LEFT JOIN found ON true
