INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT new.* FROM agreed, unnest($1::text[], $2::text[], $3::bigint[]) AS new
RETURNING 1
