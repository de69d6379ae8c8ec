WITH old AS (
    DELETE FROM holdfast.queue_count
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM holdfast.queue_count LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING queue, state, jobs)
INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT queue, state, sum(jobs) FROM old GROUP BY queue, state HAVING sum(jobs) <> 0
