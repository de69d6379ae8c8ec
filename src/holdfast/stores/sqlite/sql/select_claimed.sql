SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE seq IN (SELECT job FROM event WHERE event_type = 'job_claimed' AND op_id = ?1)
ORDER BY seq
