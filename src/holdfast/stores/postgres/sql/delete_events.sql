WITH gone AS (DELETE FROM holdfast.event WHERE job = ANY($1::bigint[]) RETURNING 1)
SELECT count(*) FROM gone
