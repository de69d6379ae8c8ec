SELECT seq FROM job WHERE due_at IS NOT NULL
UNION
SELECT seq FROM job WHERE state = 'queued' AND (ready_at > ?1 OR updated_at > ?1)
