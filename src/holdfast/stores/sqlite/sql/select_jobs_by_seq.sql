SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE seq IN (SELECT value FROM json_each(?1))
