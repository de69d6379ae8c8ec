INSERT INTO holdfast.queue_count (queue, state, jobs)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
