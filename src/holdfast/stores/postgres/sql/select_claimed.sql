SELECT claim.op_id, job.job_id
FROM holdfast.claim
CROSS JOIN LATERAL unnest(claim.jobs) WITH ORDINALITY AS claimed(seq, place)
JOIN holdfast.job ON job.seq = claimed.seq
WHERE claim.op_id = ANY($1::text[])
ORDER BY claim.op_id, claimed.place
