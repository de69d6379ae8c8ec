SELECT state, sum(jobs)::bigint FROM holdfast.queue_count
WHERE $1::text IS NULL OR queue = $1
GROUP BY state HAVING sum(jobs) > 0
