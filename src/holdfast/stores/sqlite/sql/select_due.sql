SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE due_at IS NOT NULL AND due_at <= ?1
ORDER BY due_at, seq
LIMIT ?2
