SELECT state, sum(jobs) FROM queue_count WHERE ?1 IS NULL OR queue = ?1 GROUP BY state HAVING sum(jobs) > 0
