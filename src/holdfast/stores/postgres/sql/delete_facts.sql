WITH gone AS (DELETE FROM holdfast.fact WHERE about = ANY($1::text[]) RETURNING 1)
SELECT count(*) FROM gone
