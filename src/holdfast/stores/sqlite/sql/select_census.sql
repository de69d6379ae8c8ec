SELECT queue, state, jobs FROM queue_count WHERE jobs > 0 ORDER BY queue
