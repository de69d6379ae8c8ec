SELECT clock_timestamp(), (SELECT value::bigint FROM holdfast.meta WHERE name = 'token_floor'),
       found.*
FROM (SELECT) AS always LEFT JOIN (
    SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
           ready_at, created_at, updated_at, ended_at, spec::text, detail::text, xmin
    FROM holdfast.job
    WHERE job_id = ANY($1::text[])) AS found ON true
