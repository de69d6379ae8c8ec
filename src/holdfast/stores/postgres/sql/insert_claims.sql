INSERT INTO holdfast.claim (op_id, jobs, claimed_at)
SELECT op_id, array_agg(job ORDER BY place), $1::timestamptz
FROM unnest($2::holdfast.claimed_job[]) WITH ORDINALITY AS claimed(op_id, job, place)
GROUP BY op_id
ON CONFLICT (op_id) DO NOTHING
RETURNING 1
