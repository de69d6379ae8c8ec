SELECT seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token,
       ready_at, created_at, updated_at, ended_at, spec, detail
FROM job
WHERE state = 'dead_lettered' AND seq > :after
  AND (:queue IS NULL OR queue = :queue)
  AND (:kind IS NULL OR kind = :kind)
ORDER BY seq
LIMIT :limit
