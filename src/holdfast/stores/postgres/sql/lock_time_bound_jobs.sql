SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM holdfast.job
WHERE seq = ANY($1::bigint[])
ORDER BY seq
FOR NO KEY UPDATE SKIP LOCKED
