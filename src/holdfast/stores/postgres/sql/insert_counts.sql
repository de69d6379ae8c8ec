INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT queue, state, jobs FROM agreed, unnest($1::holdfast.changed_count[])
RETURNING 1
