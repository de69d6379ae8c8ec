WITH found AS MATERIALIZED (
    SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
           ready_at, created_at, updated_at, ended_at, spec, detail
    FROM holdfast.job
    WHERE job_id = ANY($1::text[])
    ORDER BY seq
    FOR NO KEY UPDATE)
SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       found.*, NULL::xid
FROM (SELECT) AS always LEFT JOIN found ON true
