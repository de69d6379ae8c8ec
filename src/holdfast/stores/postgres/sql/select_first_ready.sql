SELECT busy.queue, min(first.ready_at)
FROM (SELECT queue FROM holdfast.queue_count WHERE state = 'queued'
      GROUP BY queue HAVING sum(jobs) > 0 ORDER BY sum(jobs) DESC, queue LIMIT $1) AS busy
CROSS JOIN generate_series(0, 9) AS lane(priority)
CROSS JOIN LATERAL (
    SELECT ready_at FROM holdfast.job
    WHERE state = 'queued' AND job.queue = busy.queue AND job.priority = lane.priority::smallint
    ORDER BY ready_at LIMIT 1) AS first
GROUP BY busy.queue
