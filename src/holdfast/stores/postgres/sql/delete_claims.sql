DELETE FROM holdfast.claim
WHERE op_id = ANY(ARRAY(
        SELECT DISTINCT op_id FROM holdfast.event
        WHERE job = ANY($1::bigint[]) AND event_type = 'job_claimed'))
  AND NOT EXISTS (SELECT FROM holdfast.job WHERE job.seq = ANY(claim.jobs))
