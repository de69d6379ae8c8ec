SELECT seq, queue, state, job_id, fencing_token
FROM job
WHERE ended_at IS NOT NULL AND ended_at < ?1
ORDER BY seq
LIMIT ?2
