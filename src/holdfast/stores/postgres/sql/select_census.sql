SELECT queue, state, sum(jobs)::bigint FROM holdfast.queue_count
GROUP BY queue, state HAVING sum(jobs) > 0
