SELECT 1 FROM holdfast.queue_count
WHERE ($1::text IS NULL OR queue = $1)
  AND ($2::text[] IS NULL OR queue LIKE ANY($2))
  AND ($3::text[] IS NULL OR state = ANY($3))
GROUP BY queue, state HAVING sum(jobs) > 0
LIMIT 1
