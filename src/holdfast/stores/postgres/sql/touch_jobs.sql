UPDATE holdfast.job
SET lease_expires_at = new.lease_expires_at, due_at = new.due_at, updated_at = new.updated_at,
    detail = new.detail::json
FROM unnest($1::holdfast.touched_job[]) AS new
WHERE job.seq = new.seq AND job.version = new.read_version AND job.fencing_token = new.read_token
  AND (new.read_row IS NULL OR job.xmin = new.read_row)
RETURNING 1
