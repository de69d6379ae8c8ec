SELECT seq, queue, state, job_id, fencing_token
FROM holdfast.job
WHERE ended_at < $1
ORDER BY seq
LIMIT $2
FOR UPDATE SKIP LOCKED
