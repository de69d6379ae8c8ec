INSERT INTO holdfast.claim (op_id, jobs, claimed_at)
SELECT op_id, array_agg(job), $1::timestamptz
FROM agreed, unnest($2::holdfast.claimed_job[])
GROUP BY op_id
ON CONFLICT (op_id) DO UPDATE SET jobs = claim.jobs || excluded.jobs
RETURNING 1
