WITH busy AS (
    SELECT queue FROM queue_count WHERE state = 'queued' AND jobs > 0 ORDER BY jobs DESC, queue LIMIT ?1
), lane (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
first AS (
    SELECT queue, (
        SELECT min(ready_at) FROM job
        WHERE state = 'queued' AND job.queue = busy.queue AND job.priority = lane.priority) AS ready_at
    FROM busy CROSS JOIN lane
)
SELECT queue, min(ready_at) FROM first WHERE ready_at IS NOT NULL GROUP BY queue
