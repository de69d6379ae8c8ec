SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE seq < :after
  AND (:queue IS NULL OR queue = :queue)
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:owner IS NULL OR owner = :owner)
  AND (:labels IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:labels) AS wanted
        WHERE wanted.value IS NOT (
            SELECT had.value FROM json_each(job.spec, '$.labels') AS had WHERE had.key = wanted.key)))
ORDER BY seq DESC
LIMIT :limit
