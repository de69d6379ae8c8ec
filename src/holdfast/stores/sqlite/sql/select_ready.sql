SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE state = 'queued' AND queue = :queue AND priority = :priority AND ready_at <= :now
  AND (ready_at, seq) > (:after_ready_at, :after_seq)
  AND (due_at IS NULL OR due_at > :now)
  AND executor IS :executor
  AND (region IS NULL OR :region IS NULL OR region = :region)
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (lock IS NULL OR NOT EXISTS (
        SELECT 1 FROM resource WHERE resource.key = job.lock AND resource.holder IS NOT NULL))
ORDER BY ready_at, seq
LIMIT :limit
