WITH found AS MATERIALIZED (
    SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
           ready_at, created_at, updated_at, ended_at, spec, detail
    FROM holdfast.job
    WHERE due_at IS NOT NULL AND due_at <= coalesce($1::timestamptz, statement_timestamp())
      AND due_at >= $3::timestamptz
    ORDER BY due_at, seq
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED)
SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       found.*, NULL::xid
FROM (SELECT) AS always LEFT JOIN found ON true
