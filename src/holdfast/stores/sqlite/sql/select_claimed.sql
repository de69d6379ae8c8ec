SELECT event.op_id, job.job_id
FROM event JOIN job ON job.seq = event.job
WHERE event.event_type = 'job_claimed' AND event.op_id IN (SELECT value FROM json_each(?1))
ORDER BY event.log_id
